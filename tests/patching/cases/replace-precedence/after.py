def f(a, b):
    x = 2 * (a + b)
    y = (a if b else a) or 1
