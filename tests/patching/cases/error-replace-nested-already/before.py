def f(x):
    for i in x:
        try:
            y = g(i)
        except KeyError:
            y = None
        log(y)
    return y
