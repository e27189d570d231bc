def f(x):
    if x:
        return 1
    def g():
        return 3
    while True:
        raise ValueError(x)
