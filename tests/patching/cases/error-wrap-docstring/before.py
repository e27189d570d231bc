def f(x):
    """Doc."""
    return x
