def f(x):
    if x:
        return None
    return x
