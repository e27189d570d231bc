from sglang import _sgldbg
def f(x):
    match x:
        case [a] if _sgldbg.tap("p.1", g(a), None if _sgldbg.off("p.1") else locals()):
            return a
        case _:
            return g(x)
