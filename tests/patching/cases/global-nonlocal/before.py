N = 0

def f(x):
    k = x
    def g():
        global N
        nonlocal k
        N += 1
        k += 1
        return k
    return g
