def f(xs):
    return map(lambda x: h(x), xs)
