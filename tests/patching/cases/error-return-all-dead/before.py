def f(x):
    while x:
        x = x - 1
    else:
        raise ValueError
    return 1
    return 2
