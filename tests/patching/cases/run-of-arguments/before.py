import os
def f(layer, x):
    for i in x:
        (hidden, top) = layer(
            i,
            x=x,
        )
    return hidden
