import triton

@triton.jit
def kernel(x):
    return x
