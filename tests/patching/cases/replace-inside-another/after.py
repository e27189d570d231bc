def f(x):
    with lock:
        with lock:
            x.pop()
    return x
