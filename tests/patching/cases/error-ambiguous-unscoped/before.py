import os


class A:
    def f(self, e):
        e.wait()

    def g(self, e):
        def inner():
            e.wait()

        inner()


e.wait()
