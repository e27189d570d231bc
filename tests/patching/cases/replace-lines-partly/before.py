def f(x):
    y = g(x)
    z = 1
    log(y)
    return y
