import os


class A:
    async def f(self, x):
        async with self.lock:
            y = await x
        async for z in x:
            y = z
        return y
