import os


class A:
    def f(self):
        self.n = g(1)
