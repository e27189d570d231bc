from sglang import _sgldbg
def f(x):
    if x:
        _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); return 1
    def g():
        return 3
    while True:
        _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals()); raise ValueError(x)
