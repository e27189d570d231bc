def f(x):
    import z; z.log(x)
    return x
