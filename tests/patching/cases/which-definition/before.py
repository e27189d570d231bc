import os


class A:
    @property
    def size(self):
        return self._size

    @size.setter
    def size(self, value):
        self._size = value
