def f(a):
    return [g(id) for id in a]
