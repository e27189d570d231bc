def f(x):
    a = 1; b = 2; c = 3
    if x: return a
