import functools

def trace(f): return f


class A:
    # about f
    @functools.cache
    # inner
    def f(self): return 1

    @property
    def g(self):
        return 2
