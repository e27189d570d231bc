import os
if os.name:
    def f(x):
        a = x
else:
    class f:
        pass
try:
    def g(x): return 1
finally:
    pass
