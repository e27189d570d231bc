def f(x):
    y = swap(x, (x))
    return y
