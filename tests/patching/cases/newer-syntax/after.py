from sglang import _sgldbg; import os
type Pair[T] = tuple[T, T]


def f[T](x: T) -> T:
    y = f'{x + f'{x}'}'
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return y
