from sglang import _sgldbg; from typing import overload

@overload
def f(x: int) -> int: ...
@overload
def f(x: str) -> str: ...
def f(x):
    return _sgldbg.tap("p.1", x, None if _sgldbg.off("p.1") else locals())
