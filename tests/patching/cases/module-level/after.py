from sglang import _sgldbg; import os

size = os.getpid(); _sgldbg.off("p.1") or _sgldbg.hit("p.1", dict(locals()))
limit = 2
