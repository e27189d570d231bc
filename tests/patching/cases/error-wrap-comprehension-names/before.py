def f(xs, g):
    return [g(x) for x in xs]
