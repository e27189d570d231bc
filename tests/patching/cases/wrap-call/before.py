def f(self, x):
    y = self.runner.sample(x, k=1)  # note
    return y
