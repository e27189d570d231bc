import os
type Pair[T] = tuple[T, T]


class C:
    kept: dict = {}
    width = 64
