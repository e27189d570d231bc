def f(a, *args, k=1, **more):
    return a
