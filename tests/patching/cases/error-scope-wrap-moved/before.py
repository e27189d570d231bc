def run(x):
    return g(h(x), 2)
