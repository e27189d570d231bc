import os
def f(x): return x
class C: limit = 1
