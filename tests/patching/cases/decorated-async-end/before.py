import functools

@functools.wraps(print)
async def f(x):
    async with x as y:
        await y
