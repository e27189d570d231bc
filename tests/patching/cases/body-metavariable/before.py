def f(xs):
    for x in xs:
        a = x
        b = a
    for y in xs:
        a = y
