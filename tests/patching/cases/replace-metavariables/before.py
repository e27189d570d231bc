def f(self, batch):
    out, ok = self.runner.forward(batch, mode=2, *self.more)  # keep this
    return out
