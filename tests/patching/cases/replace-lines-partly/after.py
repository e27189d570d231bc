def f(x):
    y = g(x)
    log(y)
    z = 1
    log(y)
    return y
