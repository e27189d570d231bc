def f(x):
    with lock:  # since the fix
        y = g(x)
        log(y)
    check(y)
    return y
