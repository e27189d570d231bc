"""Doc."""
import os

A = 1
