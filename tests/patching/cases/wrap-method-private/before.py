class A:
    def f(self, value):
        return self.__g(value)
