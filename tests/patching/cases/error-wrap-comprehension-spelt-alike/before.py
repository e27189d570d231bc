bs = 100


def f(a, bs):
    return [g(x) for x in a]


def g(x):
    return x + 1
