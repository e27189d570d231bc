import functools

def trace(f): return f


@trace
class A:
    # about f
    @functools.cache
    @trace
    # inner
    def f(self): return 1

    @property
    @trace
    def g(self):
        return 2
