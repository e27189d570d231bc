def f(x):
    y = g(x + 1)
    return y
