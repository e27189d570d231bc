#!/usr/bin/env python
# -*- coding: latin-1 -*-
# é
import os

def f(x):
    return x  # è
