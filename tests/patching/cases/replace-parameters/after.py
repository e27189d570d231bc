def f(a, *args, k=1, **more):
    trace()
    return a
