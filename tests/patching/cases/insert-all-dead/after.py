def f(x):
    for y in x:
        print(y)
        x.append(1)
        continue
        print(y)
    print(y)
    x.append(1)
