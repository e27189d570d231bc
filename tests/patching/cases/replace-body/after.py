def f(x):
    # about the branch
    if x > 2 or x < 0:
        # first
        a = x  # trailing
        b = 1; c = 2

        for i in a:
            g(i)
    return x
