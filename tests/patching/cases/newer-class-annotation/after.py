from sglang import _sgldbg; import os
type Pair[T] = tuple[T, T]


class C:
    kept: dict = {}
    width = 64; _sgldbg.off("p.1") or _sgldbg.hit("p.1", dict(locals()))
