"""Doc."""
from __future__ import annotations
import os

def f(x):
    return x
