import os
A = 1
