def f(x):
    g(x)  # why
    a = 1; b = 2
    for i in x:
        g(i)
    return a
