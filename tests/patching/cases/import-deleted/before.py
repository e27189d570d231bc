import os
import sys
import sys as system
def f():
    return os.sep, sys.path
