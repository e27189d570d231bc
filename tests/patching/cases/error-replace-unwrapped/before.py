def f(x):
    y = scale(x, 2)
    w = 1
    return y
