import triton

@triton.jit
def kernel(x):
    y = x + 1
    return y
