import os


class A:
    '''Doc.'''

    size = 3
