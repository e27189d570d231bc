def f(x):
    if x:
        log(x)
        y = g(x + 1); log(y)
    return y
