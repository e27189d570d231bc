import os


class A:
    def f(self):
        y = super().f()
        return y
