import os
def f(x):
    for i in x:
        y = i
    # a footer


def g():
    pass
