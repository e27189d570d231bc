class A:
    def f(self, x, more):
        kw = locals()
        with more:
            held = 1
        if x:
            late = 1
        __y = 2
        return kw
