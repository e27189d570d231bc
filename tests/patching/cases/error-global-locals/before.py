import os


def g():
    def h():
        global locals
        locals = os.getcwd

    h()


def f(x):
    y = x
    return y
