from sglang import _sgldbg; import contextlib
from contextlib import suppress as quietly

ignored = contextlib.suppress(OSError)


def f(x, lock):
    with quietly(KeyError):
        a = x[0]
    with ignored:
        b = x[1]
    with contextlib.nullcontext() if lock else quietly(KeyError):
        c = x[2]
    with lock, open(x) as d:
        e = d.read()
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return e
