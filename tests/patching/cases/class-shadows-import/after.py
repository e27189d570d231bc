from sglang import _sgldbg; from base import Layer


class Layer(Layer):
    def f(self, x):
        y = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        return y
