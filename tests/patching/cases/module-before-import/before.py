import os
size = 1
