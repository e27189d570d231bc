class A:
	def f(self):
		if self.x:
			return self.g(
				1,
			)
		return
