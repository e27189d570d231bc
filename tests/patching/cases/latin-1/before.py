# -*- coding: latin-1 -*-
import os
def f(n):
    s = "café" * n
    return s
