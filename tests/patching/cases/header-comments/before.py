#!/usr/bin/env python3
# -*- coding: utf-8 -*-
# Copyright: nobody.

import os


def f(x):
    a = x
    return a
