from sglang import _sgldbg; import os


class A:
    async def f(self, x):
        async with self.lock:
            y = await x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
        async for z in x:
            y = z
        return y
