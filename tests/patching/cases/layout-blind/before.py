import os


def f(x, d):
    total = (g(
        d["a"],  # a comment
        1_000,
        'x' "y",
    ))
    return total
