import os


def f(embeds):
    y = embeds
    return y
