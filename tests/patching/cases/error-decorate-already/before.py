@outer
@once(limit=3)
def f(x):
    return x
