def f(x):
    if x > 0: y = g(x)
    return y
