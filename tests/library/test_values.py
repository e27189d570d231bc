"""What the patches record at places that no test on a real server reaches."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.model.patch import Capture, Probe
from orchestrator.onhost.probe.sites import Code
from tests.library.books import read


class KVPoll(int, enum.Enum):
    """As the server numbers the states of a transfer."""

    Bootstrapping = 1
    WaitingForInput = 2


class Mode(enum.Enum):
    """Two of the server's modes."""

    DECODE = 1
    EXTEND = 2

    def is_decode(self) -> bool:
        return self is Mode.DECODE


def _request(rid: str, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(rid=rid, **more)


def _probe(name: str, edit: int = 0) -> Probe:
    action = read(name).edits[edit].action
    assert isinstance(action, Probe)
    return action


def _value(code: str, names: Mapping[str, Any]) -> Any:
    # With a global of the same name for each, as modules have them: the local one must count.
    return Code("x", code, None).value(dict.fromkeys(names, "a global"), dict(names))


def _values(captures: tuple[Capture, ...], names: Mapping[str, Any]) -> dict[str, Any]:
    return {c.name: _value(c.expression, names) for c in captures}


ROOMS = [_request("a", bootstrap_room=7), _request("b")]
POLLS = [KVPoll.WaitingForInput, KVPoll.Bootstrapping]
STATES = [(1, "b"), (2, "a")]
PD = {"counts": [0, 1, 1, 0, 0], "states": STATES, "rooms": [(1, "None"), (2, "7")]}
BATCH = SimpleNamespace(forward_mode=Mode.EXTEND, extend_num_tokens=29, batch_size=lambda: 2)
GROUP = SimpleNamespace(unique_name="tp:0", rank_in_group=1, ranks=[0, 1])


@pytest.mark.parametrize(
    ("name", "names", "values", "keys"),
    [
        pytest.param(
            "pd-bootstrap",
            {"self": SimpleNamespace(queue=ROOMS), "polls": POLLS},
            PD,
            {"states": str(STATES)},
            id="pd-bootstrap",
        ),
        pytest.param(
            "pd-prefill-transfer",
            {"self": SimpleNamespace(disagg_prefill_inflight_queue=ROOMS), "polls": POLLS},
            PD,
            {"states": str(STATES)},
            id="pd-prefill-transfer",
        ),
        pytest.param(
            "pd-decode-transfer",
            {"self": SimpleNamespace(queue=[SimpleNamespace(req=r) for r in ROOMS]),
             "polls": POLLS},
            PD,
            {"states": str(STATES)},
            id="pd-decode-transfer",
        ),
        pytest.param(
            "dp-attention",
            {"local_batch": BATCH, "disable_cuda_graph": True},
            {"mode": Mode.EXTEND, "tokens": 29, "size": 2, "disable_cuda_graph": True},
            {"mode": Mode.EXTEND, "size": 2},
            id="dp-attention",
        ),
        pytest.param(
            "dp-attention",
            {"local_batch": None, "disable_cuda_graph": False},
            {"mode": None, "tokens": 0, "size": 0, "disable_cuda_graph": False},
            {"mode": None, "size": 0},
            id="dp-attention-idle",
        ),
        pytest.param(
            "dp-dispatch",
            {"self": SimpleNamespace(round_robin_counter=1, workers=[0, 0]), "req": ROOMS[0]},
            {"req.rid": "a", "self.round_robin_counter": 1, "workers": 2},
            {},
            id="dp-dispatch",
        ),
        pytest.param(
            "retraction",
            {
                "self": SimpleNamespace(reqs=[0, 0, 0]),
                "req": _request("a", origin_input_ids=[1] * 5, output_ids=[1] * 3),
                "retracted_reqs": [0],
            },
            {"req.rid": "a", "prompt": 5, "answered": 3, "retracted": 1, "batch": 3},
            {},
            id="retraction",
        ),
        pytest.param(
            "cpu-barrier",
            {"self": GROUP},
            {"self.unique_name": "tp:0", "self.rank_in_group": 1, "self.ranks": [0, 1]},
            {},
            id="cpu-barrier",
        ),
    ],
)  # fmt: skip
def test_what_is_recorded(
    name: str, names: Mapping[str, Any], values: Mapping[str, Any], keys: Mapping[str, Any]
) -> None:
    """Each value is taken from the names of the place, also within a comprehension."""
    probe = _probe(name)
    assert _values(probe.capture, names) == values
    assert _values(probe.once_per, names) == keys


def test_both_sides_of_a_barrier_record_the_same() -> None:
    """So that a rank that went on is told from one that only arrived."""
    assert _probe("cpu-barrier").capture == _probe("cpu-barrier", 1).capture
    assert [edit.where[0].position for edit in read("cpu-barrier").edits] == ["before", "after"]


@pytest.mark.parametrize(("need", "left", "fits"), [(8, 8, True), (9, 8, False)])
def test_a_pool_that_is_too_small_fails_its_prediction(need: int, left: int, fits: bool) -> None:
    """One token more than there is does not fit; the first time is a record of its own."""
    pool = SimpleNamespace(available_size=lambda: left, size=8)
    probe = _probe("kv-allocation")
    names = {"self": pool, "need_size": need}
    assert _value(probe.expect[0].that, names) is fits
    assert _values(probe.once_per, names) == {"fits": fits, "need_size": need}


def test_the_verify_and_draft_patches_ask_the_same_of_both_workers() -> None:
    """The -v2 patches differ from the others in their places alone."""
    for name in ("eagle-draft-step", "eagle-verify"):
        assert _probe(name) == _probe(f"{name}-v2"), name
