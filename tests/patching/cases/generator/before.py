import os
def f(x):
    for i in x:
        y = yield i
        del i
    return 1
