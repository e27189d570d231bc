def f(x):
    if x == 1:
        y = 1
    elif x == 2:
        y = 1
    else:
        y = 1
    try:
        y = 1
    except ValueError as e:
        y = 1
    finally:
        y = 1
    match x:
        case 1:
            y = 1
        case [2, _]:
            y = 1
