def f(x):
    def g(y):
        z = y
        return z
    return g

def h(x):
    def g(y):
        z = y
        return z
    return g
