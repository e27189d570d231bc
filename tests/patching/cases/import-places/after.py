"""Doc."""
from __future__ import annotations; from sglang import _sgldbg; import time
import os

def f(x):
    time.sleep(0)
    return _sgldbg.tap("p.3", x, None if _sgldbg.off("p.3") else locals())
