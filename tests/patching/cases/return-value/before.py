def f(x):
    """Doc."""
    if x: return
    if x > 1:
        return x, 1
    for i in x:
        return(i)
    g(x)
