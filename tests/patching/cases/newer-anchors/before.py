import os


def f[T: int](x: T, d) -> T:
    name = f"{d["a"]} of {x}"
    text = t"{x}"
    type Pair = tuple[T, T]
    try:
        g(x)
    except ValueError, OSError:
        pass
    return x
