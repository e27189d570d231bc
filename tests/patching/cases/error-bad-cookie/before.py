# coding: latin-99
import os
