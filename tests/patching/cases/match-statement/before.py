import os
def f(x):
    match x:
        case {'a': 1}: return 1
        case _:
            y = 2
    return y
