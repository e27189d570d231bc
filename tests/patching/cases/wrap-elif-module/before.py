import os

if os.name == "x":
    A = 1
elif os.path.exists("a"):
    A = 2
