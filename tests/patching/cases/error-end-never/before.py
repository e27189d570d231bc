def f(x):
    if x:
        return 1
    else:
        raise ValueError
