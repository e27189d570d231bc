"""Lets a test make a worker outlive its main process: SIGUSR2 takes its death signal back.

Workers ask the kernel to be killed when their parent dies, and nobody else can undo that. Those of
older releases, and those below a launcher in between, never asked: they are the orphans that are
found holding memory and ports days later. `OUTLIVING` names the folder in which a process that
did it leaves a file of its number.
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def outlive(_number, _frame):
    """Runs in the main thread, whose setting is the one that counts."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)
    open(os.path.join(FOLDER, str(os.getpid())), "w").close()


FOLDER = os.environ.get("OUTLIVING")
if FOLDER:
    signal.signal(signal.SIGUSR2, outlive)
