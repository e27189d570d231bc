import os


class _A:
    def f(self, __p):
        __q = __p
        return __q
