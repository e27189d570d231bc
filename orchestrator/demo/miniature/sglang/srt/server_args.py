"""The command line: SGLang's names for the few things that the miniature can do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerArgs:
    """What the command line asked for."""

    model_path: str
    host: str
    port: int
    tp_size: int
    nnodes: int
    node_rank: int
    dist_init_addr: str | None
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_num_steps: int
    disable_cuda_graph: bool
    skip_server_warmup: bool

    @property
    def local_ranks(self) -> range:
        """The ranks of the workers on this node."""
        here = self.tp_size // self.nnodes
        return range(self.node_rank * here, (self.node_rank + 1) * here)

    def dist_address(self) -> tuple[str, int]:
        """Where the workers meet; port 0 is any, which will do on a single node."""
        if self.dist_init_addr is None:
            return ("127.0.0.1", 0)
        host, _, port = self.dist_init_addr.rpartition(":")
        return (host, int(port))


def parse_server_args(argv: list[str]) -> ServerArgs:
    """The arguments, or a usage message and exit code 2."""
    parser = argparse.ArgumentParser(prog="launch_server", description=__doc__)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr")
    parser.add_argument("--speculative-algorithm", choices=["EAGLE", "EAGLE3"])
    parser.add_argument("--speculative-draft-model-path")
    parser.add_argument("--speculative-num-steps", type=int, default=3)
    parser.add_argument("--disable-cuda-graph", action="store_true", help="there is none here")
    parser.add_argument("--skip-server-warmup", action="store_true")
    values = vars(parser.parse_args(argv))
    values["tp_size"] = values.pop("tensor_parallel_size")
    args = ServerArgs(**values)
    if args.tp_size % args.nnodes or not 0 <= args.node_rank < args.nnodes:
        parser.error("--tp must be a multiple of --nnodes, and --node-rank less than --nnodes")
    if args.nnodes > 1 and args.dist_init_addr is None:
        parser.error("--dist-init-addr is needed for more than one node")
    return args
