import os
type Pair[T] = tuple[T, T]


def g(x):
    return x.locals


def f(x):
    return x
