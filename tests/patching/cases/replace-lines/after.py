def f(x):
    # a guard
    if x is None:
        return None
    y = g(x)  # why
    return y
