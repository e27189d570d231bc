def f(a, b):
    x = a + b
    y = a if b else a
