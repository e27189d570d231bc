def f(x):
    for y in x:
        print(y)
        continue
        print(y)
    print(y)
