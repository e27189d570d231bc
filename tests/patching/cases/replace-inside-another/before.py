def f(x):
    with lock:
        with mutex:
            x.pop()
    return x
