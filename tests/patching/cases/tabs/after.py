from sglang import _sgldbg; import os
class A:
	def f(self):
		if self:
		      y = 1
		      while y:
		      	y = 0
		_sgldbg.off("p.2") or _sgldbg.hit("p.2", locals()); return 2
