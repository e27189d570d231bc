"""Doc."""
from __future__ import annotations
from __future__ import division; import os


def f(x):
    a = x
    return a
