from sglang import _sgldbg; import os
from typing import overload


@overload
def f(x: int) -> int: ...
@overload
def f(x: str) -> str: ...
def f(x):
    _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return x
