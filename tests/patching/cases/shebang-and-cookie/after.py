#!/usr/bin/env python
# -*- coding: latin-1 -*-
# é
from sglang import _sgldbg; import os

def f(x):
    return _sgldbg.tap("p.1", x, None if _sgldbg.off("p.1") else locals())  # è
