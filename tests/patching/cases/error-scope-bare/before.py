import os


class A:
    def forward(self): pass


class B:
    def forward(self): pass
