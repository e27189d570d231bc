from sglang import _sgldbg; import os


class A:
    @property
    def size(self):
        return self._size

    @size.setter
    def size(self, value):
        _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); self._size = value
