from base import Layer


class Layer(Layer):
    def f(self, x):
        y = x
        return y
