from sglang import _sgldbg
def f(x):
    if x == 1:
        y = 1
    elif x == 2:
        y = 1; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    else:
        y = 1; _sgldbg.off("p.2") or _sgldbg.hit("p.2", locals())
    try:
        y = 1
    except ValueError as e:
        y = 1; _sgldbg.off("p.3") or _sgldbg.hit("p.3", locals())
    finally:
        y = 1; _sgldbg.off("p.4") or _sgldbg.hit("p.4", locals())
    match x:
        case 1:
            y = 1
        case [2, _]:
            y = 1; _sgldbg.off("p.5") or _sgldbg.hit("p.5", locals())
