from sglang import _sgldbg; _sgldbg.off("p.1") or _sgldbg.hit("p.1", dict(locals())); import os
size = 1
