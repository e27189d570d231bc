def f(x):
    kw = locals()
    error = lent = 1

    def give():
        nonlocal lent
        del lent

    while x:
        try:
            give()
        except NameError as error:
            break
    else:
        return kw
    y = 2
    return y
