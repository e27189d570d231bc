class A:
    def f(self, x):
        y = self.g(x, 1)
        self.h(x)

    def k(self):
        self.g()
