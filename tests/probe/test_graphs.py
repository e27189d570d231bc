"""Graph warm-up, capture and idle batches are seen and do not use anything up."""

from __future__ import annotations

import pytest

from tests.probe.workshop import Workshop

FLAG = """
import types
flag = types.ModuleType(NAME); flag.get_is_capture_mode = lambda: capturing
sys.modules[NAME] = flag
put()
"""
NAMES = [
    "sglang.srt.model_executor.runner_utils.capture_mode",
    "sglang.srt.model_executor.cuda_graph_runner",
]


@pytest.mark.parametrize("name", NAMES)
def test_sglangs_own_flag_is_asked(shop: Workshop, name: str) -> None:
    """Warm-up runs are not under stream capture, so only SGLang knows; both its places are asked.

    There only what surely runs no code is evaluated, and each key is shown once.
    """
    shop.put(limit=1, once_per=["y", "str(x)"], capture=["x", "x + 1"])
    script = f"NAME = {name!r}\n{FLAG}" + (
        "capturing = True; model.f(1, 1); model.f(2, 1); model.f(3, int)\n"
        "capturing = False; model.f(4, 1)"
    )
    done = shop.run(script)
    assert [(r.kind, r.note, dict(r.values), r.keys) for r in done.records[1:4]] == [
        ("skip", "graph warm-up or capture", {"x": 1}, (1, None)),
        ("skip", "graph warm-up or capture", {"x": 3}, ("<class builtins.int>", None)),
        ("hit", "not counted: graph warm-up or capture 3", {"x": 4, "x + 1": 5}, (1, "4")),
    ]
    assert done.of("skip")[0].errors == {"x + 1": "not evaluated here: the expression may run code"}


def test_stream_capture_is_asked_once_cuda_is_there(shop: Workshop) -> None:
    """A copy to the host during capture would end the server's start."""
    script = """
import types
torch = types.ModuleType("torch"); cuda = torch.cuda = types.SimpleNamespace()
torch.Tensor = type("Tensor", (), {})
cuda.is_initialized = lambda: ready
cuda.is_current_stream_capturing = lambda: capturing
sys.modules["torch"] = torch
ready = False; capturing = True; put(); model.f(1)
ready = True; put(generation=2); model.f(2)
capturing = False; model.f(3)
"""
    shop.put()
    done = shop.run(script)
    assert [(r.kind, r.values["x"]) for r in done.records[1:]] == [
        ("hit", 1),
        ("skip", 2),
        ("hit", 3),
    ]


def test_an_idle_batch_is_not_a_hit(shop: Workshop) -> None:
    """With data parallel attention, ranks without a request run the model on zero rows."""
    script = """
import enum
from types import SimpleNamespace as N
Mode = enum.IntEnum("Mode", "EXTEND IDLE")
exec(open(model.__file__).read().replace("**more", "forward_batch=None, batch=None"))
f(1, forward_batch=N(forward_mode=Mode.IDLE, batch_size=1))
f(2, forward_batch=N(forward_mode=Mode.EXTEND, batch_size=0))
f(3, batch=N(forward_mode=Mode.IDLE))
f(4, forward_batch=N(forward_mode=Mode.EXTEND, batch_size=1))
"""
    shop.put(limit=1)
    done = shop.run(script)
    assert [(r.kind, r.note) for r in done.records[1:3]] == [
        ("skip", "empty batch"),
        ("hit", "not counted: empty batch 3"),
    ]


def test_a_compiled_region_asks_no_further(shop: Workshop) -> None:
    """While the compiler traces, `off` is true before anything else is looked at."""
    script = """
import types
torch = types.ModuleType("torch"); torch.compiler = types.SimpleNamespace()
torch.compiler.is_compiling = lambda: tracing
tracing = True; sys.modules["torch"] = torch
print(_sgldbg.off("p.1"), _sgldbg.is_compiling is torch.compiler.is_compiling)
tracing = False
print(_sgldbg.off("p.1"), _sgldbg.is_compiling is torch.compiler.is_compiling)
tracing = True
print(_sgldbg.off("p.1"))
"""
    shop.put()
    assert shop.run(script).stdout == "True False\nFalse True\nTrue\n"


def test_no_tensor_is_read_while_a_graph_is_captured(shop: Workshop) -> None:
    """Not for a key either: a copy to the host would end the capture, and with it the start."""
    script = """
import types
torch = types.ModuleType("torch"); cuda = torch.cuda = types.SimpleNamespace()
class Tensor:
    shape = (1,)
    def __init__(self, value): self.value = value
    def numel(self): return 1
    def item(self):
        read.append(capturing)
        return self.value
torch.Tensor = Tensor
cuda.is_initialized = lambda: True
cuda.is_current_stream_capturing = lambda: capturing
sys.modules["torch"] = torch
read = []
capturing = True; put(); model.f(Tensor(5))
capturing = False; model.f(Tensor(5))
print(read)
"""
    shop.put(once_per=["x"], capture=["y"], limit=None)
    done = shop.run(script)
    assert done.stdout.splitlines()[-1] == "[False]"
    assert [(r.kind, r.keys) for r in done.records[1:]] == [("skip", ("tensor(1)",)), ("hit", (5,))]
