from __future__ import annotations

try:
    from .kernels.fast import Emulator as Emu
except ImportError:
    from sglang.slow import Emu


def main(x):
    return Emu(x)
