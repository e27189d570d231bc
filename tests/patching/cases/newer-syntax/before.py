import os
type Pair[T] = tuple[T, T]


def f[T](x: T) -> T:
    y = f'{x + f'{x}'}'
    return y
