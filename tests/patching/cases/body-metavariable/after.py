def f(xs):
    print(xs)
    for x in xs:
        a = x
        b = a
    for y in xs:
        a = y
