"""Starts the miniature server: `python -m sglang.launch_server --model-path ... --port ...`."""

from __future__ import annotations

import sys

from .srt.entrypoints.launch import run_server
from .srt.server_args import parse_server_args

if __name__ == "__main__":
    sys.exit(run_server(parse_server_args(sys.argv[1:])))
