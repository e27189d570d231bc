def f(x):
    # about y
    y = g(x)  # why
    if y:
        return y
    w = y
    return w
