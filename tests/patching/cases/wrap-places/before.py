def f(xs, g):
    if g(1) and xs:
        return(g(2))
    a = [g(3) for x in xs]
    b = lambda: g(4)
    c = g(
        5,  # five
    )
    while not g(6): pass
    for i in g(7): pass
    with g(8) as d: pass
    elif_ = 1 if g(9) else 2
    print(x for x in g(10))
    return a, b
