import os


def f(x):
    hidden = self.fc(x, 1)
    other = self.fd(x)
    return hidden
