import os


class A:
    def f(self):
        return 1

    def g(self):
        self.wait()
        return 2
