def f(x):
    y = x  # last
    # below
def g(x):
    if x:
        return 1
