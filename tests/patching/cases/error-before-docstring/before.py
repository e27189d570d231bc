import os
def f(x):
    """Doc."""
    return x
