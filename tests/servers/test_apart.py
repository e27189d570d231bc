"""A server in other namespaces could not be given back, and is told from one in the agent's."""

from __future__ import annotations

import os

import pytest

from orchestrator.errors import HostError
from orchestrator.model.inventory import Launch, LaunchAdopt, LaunchCommand, LaunchPair
from orchestrator.servers.base import find

from .conftest import Bench

# As root, or as a user who is root in a user namespace of their own.
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "--net", "--"]


TOLD = "network namespace is" if os.geteuid() == 0 else "network namespace and user namespace are"


@pytest.mark.parametrize("rank", [0, 1])
def test_the_one_beside_the_agent_is_meant(agent, bench: Bench, port, rank):
    """Of two with the same arguments, one in another network; alone, that one is refused."""
    words = ["--port", str(port), "--node-rank", str(rank), "--nnodes", "2", "--mode", "silent"]
    own = (LaunchAdopt(), LaunchCommand(tuple(bench.argv(*words))))
    pair = LaunchPair(("down",), ("up",))

    def find_pid(launch: Launch) -> int:
        server = bench.server(port, launch)
        found = find(agent, server, bench.install, bench.host, rank, 2).description
        assert found is not None
        return int(found["pid"])

    apart = bench.stage.run([*UNSHARE, *bench.argv(*words)], cwd=bench.folder)
    for launch in own:
        with pytest.raises(HostError) as error:
            find_pid(launch)
        assert (error.value.code, error.value.message, error.value.hints) == (
            "not-restorable",
            f"server `kimi` could not be started again as it is: its {TOLD} not the agent's, and"
            " could not be given back",
            (
                "have the agent work where the server does: `enter` of the host, such as"
                " `[ip, netns, exec, NAME]`, `[nsenter, --net=/run/netns/NAME]` or"
                " `[apptainer, exec, instance://NAME]`",
                "or name the commands that stop and start it: `launch: {stop: [...], start:"
                " [...]}`",
            ),
        )
    assert find_pid(pair) == apart.pid
    ours = bench.run(*words)
    assert [find_pid(launch) for launch in (*own, pair)] == [ours.pid] * 3
