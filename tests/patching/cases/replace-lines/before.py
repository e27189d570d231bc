def f(x):
    y = g(x)  # why
    return y
