"""A real SGLang server to try things on: `python -m tests.real_sglang [EAGLE|EAGLE3|plain]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.real_sglang import environment, server

ALGORITHMS = {"EAGLE": "EAGLE", "EAGLE3": "EAGLE3", "plain": None}


def main(name: str) -> None:
    """Run one, say where it is, and end it with Ctrl-C."""
    if name not in ALGORITHMS:
        sys.exit(f"error: {name} is none of {', '.join(ALGORITHMS)}")
    found = environment.ensure()
    home = Path(tempfile.mkdtemp(prefix="sglang-"))
    launch = server.command(found, server.free_port(), ALGORITHMS[name], home=home)
    with server.shared_memory_cleaned():
        running = server.start(launch, home)
        try:
            print(f"pid {running.pid} starts, output in {home}", flush=True)
            took_s = server.wait_ready(running)
            print(f"ready after {took_s:.0f} s at {running.url}, Ctrl-C ends it", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            server.stop([running])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "EAGLE")
