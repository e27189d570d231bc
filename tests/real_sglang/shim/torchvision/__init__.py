"""Stand-in for torchvision, which SGLang and transformers import at start for images only.

The real one of the package index does not load beside a CPU build of torch. Every submodule
imports and every attribute is an inert class; nothing here works on an image.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0"
__path__ = []


class _InertMeta(type):
    """Enumeration-like classes are read for their members: any member is a text."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class _InertModule(types.ModuleType):
    def __getattr__(self, name):
        return _inert(name)


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torchvision.<anything>` that is no file and makes an inert module of it."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(__name__ + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return _InertModule(spec.name)

    def exec_module(self, module):
        pass


def _inert(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return _InertMeta(name, (), {})


def __getattr__(name):
    return _inert(name)


sys.meta_path.append(_Submodules())
