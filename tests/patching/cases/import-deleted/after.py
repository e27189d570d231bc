import os; import sys; pass
import sys as system
import sys as system
def f():
    return os.sep, sys.path
