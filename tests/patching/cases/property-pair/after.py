from sglang import _sgldbg
class A:
    @property
    def x(self):
        return _sgldbg.tap("p.2", self._x, None if _sgldbg.off("p.2") else locals())

    @x.setter
    def x(self, value):
        _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals()); self._x = value
