def f(x):
    for i in g(x):  # all
        pass
    with h(x) as a, \
         h(a) as b:
        pass
    while (k(x)
           and x): pass
    return x
