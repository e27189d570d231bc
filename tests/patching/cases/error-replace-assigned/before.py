def f(x):
    z = x
    return z
