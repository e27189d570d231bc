def f(x):
    y = x  # c
    return y
