def f(x):
    if x:
        y = g(x)
    return x
