def f(x):
    a = 1; b = 4; d = 5; c = 3
    if x: return b
