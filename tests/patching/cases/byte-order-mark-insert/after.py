import os
a = 1
