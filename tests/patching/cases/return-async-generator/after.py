from sglang import _sgldbg
async def f(x):
    async for i in x:
        yield i
    _sgldbg.tap("p.1", None, None if _sgldbg.off("p.1") else locals()); return

def g(x):
    y = _sgldbg.tap_group("p.3", (yield x), None if _sgldbg.off("p.3") else locals())
    return _sgldbg.tap("p.2", (yield y), None if _sgldbg.off("p.2") else locals())
