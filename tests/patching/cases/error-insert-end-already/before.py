def f(x):
    if x:
        return x
    y = g(x)
    log(y)


def g(x):
    pass
