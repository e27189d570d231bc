from sglang import _sgldbg; import os


class A:
    '''Doc.'''; _sgldbg.off("p.1") or _sgldbg.hit("p.1", dict(locals()))

    size = 3
