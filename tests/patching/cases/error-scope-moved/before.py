import os


def run(self):
    self.wait()
    self.step()
    self.wait()


class Mixin:
    def step(self):
        self.wait()


self.wait()
