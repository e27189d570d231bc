"""A session from begin to finish on one host."""

from __future__ import annotations

import os

from orchestrator.onhost.agent.held import lease
from tests.onhost.transaction.place import EDITED, HOST, op, requests_of, stage, whole_session


def test_a_whole_session_leaves_everything_as_it_was(place):
    """Files, compiled files, links, times, and the server: all as before, nothing of ours left."""
    main = place.start_server()
    context = place.begin(with_guard=True)
    (watching,) = place.guards()
    whole_session(place, context, main)
    assert place.changes() == []
    assert len(place.originals()) == 1
    assert place.guards() == []
    assert not lease.is_alive(lease.Process(watching, 0))
    assert os.listdir(os.path.join(place.state, "ended", "s1")) == [HOST]
    assert os.listdir(place.top / "tmp") == []
    assert place.status() == []


def test_swapped_files_hold_the_planned_bytes(place):
    """After `swap` the planned bytes stand there with the original's mode, owner, attributes."""
    context = place.begin()
    value = stage(place, context)
    assert [item["kept"] for item in value["files"]] == [None, "link", "link"]
    op(context, "swap")
    for name, data in EDITED.items():
        assert (place.root / name).read_bytes() == data
    layers = place.root / "sglang/srt/layers.py"
    assert oct(layers.stat().st_mode) == "0o100640"
    assert os.getxattr(layers, "user.note") == b"hello"
    assert (place.top / "cache/llama.py").read_bytes() == b"WIDTH = 64\n"
    value = op(context, "revert")
    assert value["verified"], value
    assert [f["state"] for f in value["files"]] == ["removed", "reverted", "reverted"]
    assert [f["why"] for f in value["files"]] == ["", "", ""]
    assert op(context, "finish") == {"left": []}
    assert place.changes() == []


def test_a_host_on_which_nothing_is_to_be_changed(place):
    """Where all of a fix stands already, the host takes part in the session with its server."""
    main = place.start_server()
    context = place.begin()
    for name, args, raw in requests_of(place, main):
        if name == "stage":
            args, raw = place.stage_args({}, runtime=False)
        value = op(context, name, raw, **args)
        if name in ("stage", "swap", "revert"):
            assert value["files"] == []
        if name == "revert":
            assert value["verified"]
    assert place.changes() == []
    assert len(place.originals()) == 1
    assert place.status() == []
