import os

size = os.getpid()
limit = 2
