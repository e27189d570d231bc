import os
h = lambda v: v + 1
