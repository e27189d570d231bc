def f(x):
    pass  # why
    a = 1; pass
    pass
    return a
