import os


class Model:
    def forward(self): pass
    def backward(self): pass
