def f(x):
    # about the branch
    if x > 1:  # head
        # first
        a = x  # trailing
        b = 1; c = 2

        for i in a:
            g(i)
    return x
