def f(x):
    y = clamp(x)
    return y
