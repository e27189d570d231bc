def f(x):
    if x:
        y = h(x)
    else:
        y = clamp(x)
    return y
