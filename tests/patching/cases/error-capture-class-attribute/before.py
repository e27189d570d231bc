import os


class A:
    limit = 3

    def f(self):
        y = self.limit
        return y
