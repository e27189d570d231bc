async def f(x):
    async for i in x:
        yield i
    return

def g(x):
    y = yield x
    return (yield y)
