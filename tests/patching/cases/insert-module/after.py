"""Doc."""
import os

A = 1
B = A
