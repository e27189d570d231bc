from triton import jit as compiled


@compiled
def kernel(x):
    def inner(y):
        z = y
        return z
    return inner(x)
