from sglang import _sgldbg; import os

if os.name == "x":
    A = 1
elif _sgldbg.tap("p.1", os.path.exists("a"), None if _sgldbg.off("p.1") else dict(locals())):
    A = 2
