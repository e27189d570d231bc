def f(x):
    match x:
        case [a] if g(a):
            return a
        case _:
            return g(x)
