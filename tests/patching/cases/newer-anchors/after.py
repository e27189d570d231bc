from sglang import _sgldbg; import os


def f[T: int](x: T, d) -> T:
    name = f"{d["a"]} of {x}"; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    text = _sgldbg.tap("p.5", t"{x}", None if _sgldbg.off("p.5") else locals()); _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    type Pair = tuple[T, T]; _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals())
    try:
        g(x)
    except ValueError, OSError:
        _sgldbg.off("p.4") or _sgldbg.hit("p.4", locals()); pass
    return x
