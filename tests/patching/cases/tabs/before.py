import os
class A:
	def f(self):
		if self:
		      y = 1
		return 2
