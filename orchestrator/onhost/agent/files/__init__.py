"""The files of an install: planned, swapped, put back, and what Python makes of them."""
