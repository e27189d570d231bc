class A:
    def f(self, x, more):
        kw = locals()
        if x:
            late = 1
        __y = 2
        return kw
