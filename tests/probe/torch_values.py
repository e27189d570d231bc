"""Tensors and compiled code with a real CPU torch; `make test-sglang` runs this where torch is.

Not named `test_*`: the project's own environment has no torch, and a test that cannot run there
must not look as if it had.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch  # type: ignore[import-not-found,unused-ignore]

from tests.probe.workshop import Workshop

pytestmark = pytest.mark.torch

MODULE = """
from sglang import _sgldbg; import torch
def f(x, y=1):
    z = x; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
    return z
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(24, 8)
    def forward(self, hidden_states, embeds):
        x = hidden_states + 0; _sgldbg.off("p.1") or _sgldbg.hit("p.1", locals())
        if x.shape[-1] != embeds.shape[-1]:
            x = self.fc(x)
        return x
"""


@pytest.fixture
def torch_shop(tmp_path: Path) -> Workshop:
    """A package whose module imports torch; complete by itself, so that no conftest is needed."""
    shop = Workshop(tmp_path)
    shop.write("sglang/srt/model.py", MODULE)
    return shop


def values_of(shop: Workshop, setup: str, *codes: str) -> dict[str, Any]:
    """Captured values of these expressions, with `setup` run before in the module."""
    shop.put(capture=list(codes))
    done = shop.run(f"import torch\nexec({setup!r}, model.__dict__)\nmodel.f(1)\n")
    assert done.code == 0, done.stderr.decode()
    (record,) = done.of("hit")
    assert record.errors == {}
    return dict(record.values)


def test_statistics_are_those_of_torch(torch_shop: Workshop) -> None:
    """Every number equals torch's own, whatever the dtype and layout."""
    codes = ["a", "b", "c", "a.T", "a.half()", "a.bfloat16()", "ids", "flags", "scalar", "comp"]
    setup = (
        "torch.manual_seed(0); a = torch.randn(29, 192); b = torch.tensor([1.0, 0.0, 3.0])\n"
        "c = torch.tensor([1.0, float('nan'), float('-inf'), 0.0])\n"
        "ids = torch.tensor([5, 2 ** 60, -1, 0, 7, 9]); flags = torch.tensor([True, False])\n"
        "scalar = torch.tensor(2.5); comp = torch.tensor([1 + 2j, 3 + 4j])"
    )
    values = values_of(torch_shop, setup, *codes)
    torch.manual_seed(0)
    a = torch.randn(29, 192)
    for name, tensor in (("a", a), ("a.T", a.T), ("a.half()", a.half().float())):
        value = values[name]
        assert value["shape"] == list(tensor.shape)
        assert value["n"] == 29 * 192
        for key in ("mean", "min", "max"):
            assert value[key] == pytest.approx(getattr(tensor, key)().item(), rel=1e-4)
        assert value["std"] == pytest.approx(tensor.std(unbiased=False).item(), rel=1e-4)
        assert value["head"] == pytest.approx(tensor.reshape(-1)[:5].tolist(), rel=1e-4)
    assert values["a.bfloat16()"]["dtype"] == "bfloat16"
    assert values["b"] == {
        "t": "tensor",
        "shape": [3],
        "dtype": "float32",
        "device": "cpu",
        "n": 3,
        "mean": 1.333333,
        "std": 1.247219,
        "min": 0.0,
        "max": 3.0,
        "nan": 0,
        "inf": 0,
        "zero": 0.3333333,
        "head": [1.0, 0.0, 3.0],
    }
    assert (values["c"]["nan"], values["c"]["inf"], values["c"]["mean"]) == (1, 1, "nan")
    assert values["c"]["head"] == [1.0, "nan", "-inf", 0.0]
    assert (values["ids"]["max"], values["ids"]["head"]) == (2**60, [5, 2**60, -1, 0, 7])
    assert (values["flags"]["mean"], values["flags"]["head"]) == (0.5, [1, 0])
    assert (values["scalar"]["shape"], values["scalar"]["head"]) == ([], [2.5])
    assert (values["comp"]["part"], values["comp"]["mean"]) == ("real", 2.0)


def test_tensors_without_readable_data(torch_shop: Workshop) -> None:
    """Meta, fake, sparse, quantized, packed and empty ones give their shape and the reason."""
    setup = (
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "meta = torch.empty(3, 4, device='meta')\n"
        "with FakeTensorMode(): fake = torch.empty(3, 4)\n"
        "sparse = torch.eye(3).to_sparse()\n"
        "quant = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)\n"
        "empty = torch.empty(0, 64)\n"
        "fp8 = torch.ones(4).to(torch.float8_e4m3fn)\n"
        "fp4 = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)\n"
        "int4, uint4, uint1, bits8, quint4 = [torch.zeros(4, dtype=torch.uint8).view(kind) for "
        "kind in (torch.int4, torch.uint4, torch.uint1, torch.bits8, torch.quint4x2)]\n"
        "class Owed: pass\n"
        "owed = Owed()\n"
        "class Sub(torch.Tensor): pass\n"
        "sub = torch.ones(2).as_subclass(Sub)\n"
        "param = torch.nn.Parameter(torch.ones(2))\n"
        "size = torch.ones(2, 3).shape; kind = torch.bfloat16; dev = torch.device('cpu')\n"
    )
    packed = "fp4 int4 uint4 uint1 bits8 quint4"
    names = f"x meta fake sparse quant empty fp8 {packed} owed sub param size kind dev"
    values = values_of(torch_shop, setup, *names.split())
    why = {
        name: value.get("why", "") for name, value in values.items() if name not in ("x", "kind")
    }
    assert why["meta"] == "meta tensor: no data"
    assert why["fake"] == "FakeTensor: its data are not read"
    assert why["sparse"] == "layout torch.sparse_coo"
    assert why["quant"] == "quantized"
    assert why["empty"] == "empty"
    assert all(why[name] for name in packed.split())
    assert {values[name]["dtype"] for name in packed.split()} == {
        "float4_e2m1fn_x2", "int4", "uint4", "uint1", "bits8", "quint4x2",
    }  # fmt: skip
    assert [why[name] for name in ("fp8", "sub", "param")] == ["", "", ""]
    assert values["fake"]["shape"] == [3, 4]
    assert values["empty"]["shape"] == [0, 64]
    assert values["fp8"]["mean"] == 1.0
    assert values["owed"] == {"t": "Owed", "text": "<sglang.srt.model.Owed>"}
    assert values["size"] == {"t": "Size", "text": "(2, 3)"}
    assert values["kind"] == {"t": "dtype", "text": "torch.bfloat16"}
    assert values["dev"] == {"t": "device", "text": "cpu"}


def test_a_large_tensor_is_sampled_and_says_so(torch_shop: Workshop) -> None:
    """Up to 4 Mi elements exact; beyond, a strided sample of the whole range."""
    setup = (
        "exact = torch.arange(4 << 20, dtype=torch.float32).reshape(-1, 1024)\n"
        "large = torch.arange(5 << 20, dtype=torch.float32).reshape(1024, -1).T\n"
    )
    values = values_of(torch_shop, setup, "exact", "large")
    assert "sampled" not in values["exact"]
    assert values["exact"]["max"] == (4 << 20) - 1
    assert values["large"]["n"] == 5 << 20
    assert 50_000 < values["large"]["sampled"] <= 262_144
    assert values["large"]["mean"] == pytest.approx((5 << 19), rel=0.02)
    assert values["large"]["std"] == pytest.approx((5 << 20) / 12**0.5, rel=0.02)


def test_one_copy_per_hit(torch_shop: Workshop) -> None:
    """However many tensors are captured, `tolist` runs once; a copy is a wait for the device."""
    script = """
import torch
calls = []
real = torch.Tensor.tolist
torch.Tensor.tolist = lambda self: calls.append(1) or real(self)
model.f(torch.ones(3), torch.zeros(2, 2)); print(len(calls))
"""
    torch_shop.put(capture=["x", "y", "x + 1", "y.T"])
    assert torch_shop.run(script).stdout == "1\n"


def test_a_batch_of_empty_tensors_uses_nothing_up(torch_shop: Workshop) -> None:
    """Idle ranks run on zero rows; one empty operand among others is a finding and is recorded."""
    torch_shop.put(capture=["x", "y"], limit=1)
    script = """
import torch
model.f(torch.ones(0, 4), torch.ones(0, 4)); model.f(torch.ones(3, 4), torch.ones(0, 4))
"""
    done = torch_shop.run(script)
    assert [(r.kind, r.note) for r in done.records[1:3]] == [
        ("skip", "empty batch"),
        ("hit", "not counted: empty batch 1"),
    ]
    assert done.of("hit")[0].values["y"]["why"] == "empty"


def test_the_seeds_question(torch_shop: Workshop) -> None:
    """Widths per key, the expectation, and `emit_if` on the statistics."""
    torch_shop.put(
        capture=["x", "embeds", "self.fc.weight", "self.nope"],
        once_per=["hidden_states.shape[-1]"],
        expect={"fused": {"that": "hidden_states.shape[-1] == 3 * embeds.shape[-1]", "when": None}},
    )
    script = """
import torch
m = model.Model(); e = torch.ones(4, 8)
for width in (24, 24, 8, 8): m(torch.ones(4, width), e)
put(generation=2, site={"once_per": [], "emit_if": "stats.x.nan > 0"})
m(torch.ones(4, 24), e); m(torch.full((4, 24), float("nan")), e)
"""
    done = torch_shop.run(script)
    assert [(r.keys, dict(r.expect)) for r in done.of("hit")] == [
        ((24,), {"fused": True}),
        ((8,), {"fused": False}),
        ((), {"fused": True}),
    ]
    assert done.of("hit")[2].values["x"]["nan"] == 96
    assert done.of("hit")[0].errors == {
        "self.nope": "AttributeError: 'Model' object has no attribute 'nope'"
    }


@pytest.mark.parametrize("first", ["import torch", "pass"], ids=["torch first", "runtime first"])
def test_a_compiled_region_is_left_whole(torch_shop: Workshop, first: str) -> None:
    """Under `fullgraph=True` one graph, no recompile when the site is spent or armed, no hit."""
    script = f"""
{first}
import torch
from torch._dynamo.testing import CompileCounter
torch._dynamo.reset()
counter = CompileCounter()
m = model.Model(); x = torch.ones(4, 24); e = torch.ones(4, 8)
fast = torch.compile(m, backend=counter, fullgraph=True)
fast(x, e); fast(x, e); print(counter.frame_count)
_sgldbg.poll(); fast(x, e); print(counter.frame_count)
m(x, e); m(x, e); fast(x, e); print(counter.frame_count)
put(generation=2); m(x, e); fast(x, e); print(counter.frame_count)
"""
    torch_shop.put(limit=1)
    done = torch_shop.run(script)
    assert done.code == 0, done.stderr.decode()
    assert done.stdout.split() == ["1", "1", "1", "1"]
    assert len(done.of("hit")) == 2


def test_a_value_passes_through_a_compiled_region(torch_shop: Workshop) -> None:
    """A probe around an expression folds away as well: one graph, the same result, no hit."""
    wrapped = '_sgldbg.tap("p.1", self.fc(x), None if _sgldbg.off("p.1") else locals())'
    torch_shop.write("sglang/srt/model.py", MODULE.replace("self.fc(x)", wrapped))
    script = """
import torch
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
m = model.Model(); x = torch.ones(4, 24); e = torch.ones(4, 8)
fast = torch.compile(m, backend=counter, fullgraph=True)
same = torch.equal(fast(x, e), m.fc(x + 0)); print(same, counter.frame_count)
_sgldbg.poll(); fast(x, e); print(counter.frame_count)
m(x, e); fast(x, e); put(generation=2); fast(x, e); print(counter.frame_count)
"""
    torch_shop.put(capture=["value"])
    done = torch_shop.run(script)
    assert done.code == 0, done.stderr.decode()
    assert done.stdout.split() == ["True", "1", "1", "1"]
    assert [v["shape"] for v in done.values("value") if v] == [[4, 8]]


def test_sixteen_threads_measure_at_once(torch_shop: Workshop) -> None:
    """Statistics of one hit are never those of another."""
    script = """
import torch
torch.set_num_threads(1)
def work(n):
    for _ in range(20): model.f(torch.full((64,), float(n)))
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    torch_shop.put()
    done = torch_shop.run(script)
    assert done.damaged == 0
    assert len(done.of("hit")) == 320
    assert all(v["min"] == v["max"] == v["mean"] == v["head"][0] for v in done.values())
