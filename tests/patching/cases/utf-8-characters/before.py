import os
def f(n):
    größe = "é" * n; s = "…"
    return s
