"""`python -m orchestrator` and the command `sgldbg`."""

from __future__ import annotations

import sys

from orchestrator.cli.interrupts import catch_signals


def main() -> None:
    """Run the command line and exit with its code, which no signal takes away any more."""
    catch_signals()
    from orchestrator.cli.app import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
