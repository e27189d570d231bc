# coding: latin-1
A = 1
