import os


def f(x):
    hidden = self.fc(x, 1)
    return hidden
