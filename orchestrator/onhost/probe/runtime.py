"""What a probe's site calls inside a worker: it decides, evaluates, measures and writes a record.

Placed in the package as `_sgldbg.py`, followed by one `_start({...})` line: a single file, since a
host gets no second one. Standard library only; torch and the server's modules are looked up in
`sys.modules`, never imported. Nothing here raises into the server (Ctrl-C excepted). The formats
are those of `docs/reference/record.md`, the reasons stand in `docs/concepts/probes.md`.
"""

from __future__ import annotations

import ast
import atexit
import binascii
import enum
import itertools
import json
import math
import os
import re
import stat
import sys
import threading
import time
import types
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

_POLL_S = 0.2  # between two looks at the table; the session waits one poll after arming
_LINE = 4096  # PIPE_BUF: one write of up to here is never torn on a pipe or an O_APPEND file
_PIECE = 1900  # of JSON per part; escaping doubles it at most, which still fits a line
_LONGEST = 48 * 1024  # of one record's JSON; beyond it the values are left out
_SPOOL = 64 << 20  # bytes of one process's spool file; a probe without a limit must not fill /tmp
_EXACT = 4 << 20  # elements measured exactly: 6 statistics over 16 Mi took 261 ms on a CPU
_SAMPLE = 256 << 10  # elements of the strided sample beyond that
_TEXT = 200  # characters of any text from the server
_SKIPS = 16  # keys for which one skip reason is reported
_FLAGS = (  # where SGLang keeps `get_is_capture_mode`, newest first
    "sglang.srt.model_executor.runner_utils.capture_mode",
    "sglang.srt.model_executor.cuda_graph_runner",
)
# Expressions of these alone run no kernel and copy nothing; `Index` is Python 3.8's.
_PLAIN: Tuple[Any, ...] = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice)
_PLAIN += (ast.UnaryOp, ast.USub, ast.Tuple, ast.Constant, ast.Load)
_PLAIN += (getattr(ast, "Index", ast.Load),)

_now = time.monotonic
_next_poll = 0.0
_live: FrozenSet[str] = frozenset()  # sites that may still fire; everything else is off
_flags: Tuple[Callable[[], bool], ...] = ()  # found anew at each poll
_cut: Dict[str, int] = {}  # calls of sites that are off
_seq: Dict[str, int] = {}
_lock = threading.Lock()  # of counters; never held while an expression is evaluated
_poll_lock = threading.Lock()
_thread = threading.local()


class _State:
    """What the table says now. One instance, replaced attributes."""

    def __init__(self) -> None:
        self.session = self.host = self.dir = ""
        self.stamp: Any = None
        self.table: Any = None
        self.generation = 0
        self.phase = ""
        self.sites: Dict[str, _Site] = {}
        self.modules: Dict[str, List[str]] = {}
        self.announced: Set[str] = set()
        self.unsent = 0
        self.title = ""
        self.ranks: Dict[str, int] = {}


class _Code:
    """One expression, compiled once; `error` says why it cannot be."""

    def __init__(self, name: str, text: str, owner: Optional[str]) -> None:
        self.name = name
        self.error = ""
        self.merged = self.plain = False
        try:
            tree = ast.parse("(" + text + "\n)", "<sgldbg>", "eval")
            _mangle(tree, owner)
            self.code: Any = compile(tree, "<sgldbg>", "eval")
            # A nested scope (comprehension, lambda) would look names up in the globals only.
            self.merged = any(isinstance(c, types.CodeType) for c in self.code.co_consts)
            self.plain = all(isinstance(node, _PLAIN) for node in ast.walk(tree))
        except Exception as error:
            self.error = _describe(error)

    def value(self, glob: Dict[str, Any], loc: Dict[str, Any]) -> Any:
        if self.error:
            raise ValueError(self.error)
        if self.merged:
            return eval(self.code, dict(glob, **loc))
        return eval(self.code, glob, loc)


class _Site:
    """One site's questions and counters since the table last changed."""

    def __init__(self, name: str, spec: Dict[str, Any], armed: bool) -> None:
        owner = spec.get("class")

        def code(label: str, text: Optional[str]) -> Optional[_Code]:
            return None if text is None else _Code(label, text, owner)

        self.name = name
        self.clear = bool(spec.get("clear")) and sys.version_info < (3, 13)
        self.capture = [_Code(c["name"], c["code"], owner) for c in spec.get("capture") or ()]
        self.once_per = [_Code(text, text, owner) for text in spec.get("once_per") or ()]
        self.when = code("when", spec.get("when"))
        self.emit_if = code("emit_if", spec.get("emit_if"))
        self.expect = [
            (_Code(label, e["that"], owner), code(label, e.get("when")))
            for label, e in (spec.get("expect") or {}).items()
        ]
        self.ranks = frozenset(spec.get("ranks") or ())
        # Before the probes are armed nothing but the keys limits: one record for each.
        self.unique = bool(self.once_per) or not armed
        self.max_keys = int(spec.get("max_keys") or 64) if self.once_per else 1
        self.limit = spec.get("limit") if armed else None
        self.every = max(1, int(spec.get("every") or 1)) if armed else 1
        self.rate = spec.get("rate_per_s") if armed else None
        self.tokens = max(1.0, float(self.rate or 1))
        self.refilled = _now()
        self.hits = self.qualified = self.emitted = self.troubles = 0
        self.keys: Set[Any] = set()
        self.skips: Dict[str, int] = {}
        self.skipped: Set[Any] = set()
        self.spent = False
        self.reported = 0
        self.next_report = 0.0


_state = _State()


# --- what a site calls ---------------------------------------------------------------------------


def _unbound() -> bool:
    """Stands in for `torch.compiler.is_compiling` until torch is there."""
    global _compiling
    asks = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", None)
    if asks is None:
        return False
    if asks():
        return True
    _compiling = asks
    return False


_compiling: Callable[[], bool] = _unbound


def off(site: str) -> bool:
    """Whether `hit` need not be called. Asks for compilation first: dynamo folds that to True."""
    if _compiling():
        return True
    if _now() >= _next_poll:
        _poll()
    if site in _live:
        return False
    _cut[site] = _cut.get(site, 0) + 1
    return True


def hit(site: str, loc: Dict[str, Any]) -> None:
    """Record what the table asks for at this site, if this hit qualifies."""
    if getattr(_thread, "busy", False):  # an expression reached a site, or a signal handler
        return
    clear = False
    try:
        _thread.busy = True
        here = _state.sites.get(site)
        if here is not None:
            clear = here.clear
            glob = sys._getframe(1).f_globals
            _consider(here, glob, dict(loc) if loc is glob else loc)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _trouble(site, {"probe": _describe(error)})
    finally:
        _thread.busy = False
        # Up to Python 3.12 this dict keeps every tensor alive until the frame ends.
        if clear and sys.gettrace() is None:
            loc.clear()


# --- deciding ------------------------------------------------------------------------------------


def _consider(site: _Site, glob: Dict[str, Any], loc: Dict[str, Any]) -> None:
    site.hits += 1
    if site.ranks and _wrong_rank(site):
        return
    if _in_graph():
        _skip(site, "graph warm-up or capture", glob, loc, _light_keys(site, glob, loc))
        return
    if _is_idle(loc):
        _skip(site, "empty batch", glob, loc)
        return
    if site.when is not None:
        result, error = _try(site.when, glob, loc)
        if error:
            _trouble(site.name, {"when": error})
            return
        if not result:
            _skip(site, "`when` is false")
            return
    keys = tuple([_key(code, glob, loc) for code in site.once_per])
    if not _reserve(site, keys):
        return
    done = False
    try:
        done = _observe(site, glob, loc, keys)
    finally:
        if not done:
            with _lock:
                site.emitted -= 1
                site.keys.discard(keys)
    if done and site.limit is not None and site.emitted >= site.limit:
        _spend(site, "limit of %d records reached" % site.limit)
    elif done and site.unique and len(site.keys) >= site.max_keys:
        _spend(site, "%d distinct keys recorded" % site.max_keys if site.once_per else "")


def _reserve(site: _Site, keys: Tuple[Any, ...]) -> bool:
    """Take one of the records that are left; threads never share one."""
    if keys in site.keys and site.every == 1:
        return False
    with _lock:
        site.qualified += 1
        if site.spent or (site.qualified - 1) % site.every:
            return False
        if site.unique and (keys in site.keys or len(site.keys) >= site.max_keys):
            return False
        if site.limit is not None and site.emitted >= site.limit:
            return False
        if site.rate is not None:
            now = _now()
            most = max(1.0, float(site.rate))
            site.tokens = min(most, site.tokens + (now - site.refilled) * site.rate)
            site.refilled = now
            if site.tokens < 1:
                site.skips["rate"] = site.skips.get("rate", 0) + 1
                return False
            site.tokens -= 1
        if site.unique:
            site.keys.add(keys)
        site.emitted += 1
        return True


def _observe(site: _Site, glob: Dict[str, Any], loc: Dict[str, Any], keys: Any) -> bool:
    """Evaluate everything and write the record; false where the hit turned out not to qualify."""
    errors: Dict[str, str] = {}
    values, tensors = _capture(site, glob, loc, errors)
    if tensors and not any(tensors):
        _skip(site, "empty batch", glob, loc)
        return False
    if site.emit_if is not None:
        wanted, error = _try(site.emit_if, glob, dict(loc, stats=_Stats(values)))
        if error:
            errors["emit_if"] = error
        elif not wanted:
            _skip(site, "`emit_if` is false")
            return False
    results: Dict[str, Optional[bool]] = {}
    for that, when in site.expect:
        asked, error = (True, "") if when is None else _try(when, glob, loc)
        if not error and asked:
            asked, error = _try(that, glob, loc)
            results[that.name] = asked
        elif not error:
            results[that.name] = None
        if error:
            errors[that.name] = error
            results.pop(that.name, None)
    note = ", ".join("%s %d" % pair for pair in sorted(site.skips.items()))
    _emit(
        "hit",
        site.name,
        note="not counted: " + note if note else "",
        v=values,
        key=[_show(key) for key in keys],
        e=errors,
        x=results,
        req=_requests(loc),
    )
    return True


def _try(code: _Code, glob: Dict[str, Any], loc: Dict[str, Any]) -> Tuple[bool, str]:
    try:
        return bool(code.value(glob, loc)), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an expression may even raise SystemExit
        return False, _describe(error)


def _key(code: _Code, glob: Dict[str, Any], loc: Dict[str, Any]) -> Any:
    """A key that can be kept: never a tensor, never an object of the server's."""
    try:
        value = code.value(glob, loc)
        kind = type(value)
        if kind is int or kind is str or kind is bool or value is None:
            return value if kind is not str else value[:_TEXT]
        numel = getattr(value, "numel", None) if _is_tensor(kind) else None
        return _text(value.item()) if numel is not None and numel() == 1 else _text(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "error: " + _describe(error)


def _light_keys(site: _Site, glob: Dict[str, Any], loc: Dict[str, Any]) -> Tuple[Any, ...]:
    return tuple([_key(c, glob, loc) if c.plain else None for c in site.once_per])


def _skip(
    site: _Site,
    reason: str,
    glob: Optional[Dict[str, Any]] = None,
    loc: Optional[Dict[str, Any]] = None,
    keys: Tuple[Any, ...] = (),
) -> None:
    """Count a hit that does not qualify; its reason is reported once (and once per key)."""
    with _lock:
        site.skips[reason] = site.skips.get(reason, 0) + 1
        if (reason, keys) in site.skipped or len(site.skipped) >= _SKIPS:
            return
        site.skipped.add((reason, keys))
    errors: Dict[str, str] = {}
    values: Dict[str, Any] = {}
    if glob is not None and loc is not None:
        values = _capture(site, glob, loc, errors, light=True)[0]
    req = _requests(loc or {})
    _emit("skip", site.name, note=reason, v=values, key=[_show(k) for k in keys], e=errors, req=req)


def _spend(site: _Site, why: str) -> None:
    global _live
    with _lock:
        if site.spent:
            return
        site.spent = True
        _live = _live - {site.name}
        _cut.pop(site.name, None)
    if why:
        skipped = "".join(", %s %d" % pair for pair in sorted(site.skips.items()))
        _emit("spent", site.name, note="%s after %d hits%s" % (why, site.hits, skipped))


def _wrong_rank(site: _Site) -> bool:
    ranks = _ranks()
    rank = ranks.get("rank", ranks.get("tp"))
    if rank is None or rank in site.ranks:
        return False
    _skip(site, "rank %d is not asked" % rank)
    _spend(site, "")
    return True


def _trouble(site: str, errors: Dict[str, str]) -> None:
    """Report what could not even be decided, a few times per site; the last resort is silence."""
    try:
        here = _state.sites[site]
        here.troubles += 1
        if here.troubles <= 3:
            _emit("error", site, e=errors)
    except Exception:
        return


def _in_graph() -> bool:
    """During graph warm-up the data are zeros, during capture a copy to the host is an error."""
    for asks in _flags:  # noqa: SIM110 - a generator costs more than the rest of this function
        if asks():
            return True
    return False


def _find_flags() -> Tuple[Callable[[], bool], ...]:
    """What tells of graph warm-up and capture in this process, as far as it is imported."""
    found = [getattr(sys.modules.get(name), "get_is_capture_mode", None) for name in _FLAGS]
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if getattr(cuda, "is_initialized", bool)():
        found.append(getattr(cuda, "is_current_stream_capturing", None))
    return tuple([flag for flag in found if flag is not None])


def _is_idle(loc: Dict[str, Any]) -> bool:
    """Whether the server itself says that this batch holds no request."""
    batch = loc.get("forward_batch")
    if batch is None:
        return False
    mode = getattr(batch, "forward_mode", None)
    size = getattr(batch, "batch_size", None)
    return getattr(mode, "_name_", "") == "IDLE" or (type(size) is int and size == 0)


# --- values --------------------------------------------------------------------------------------


class _Stats(dict):  # type: ignore[type-arg]
    """The measured values, for `emit_if`: `stats.hidden_states.nan`, `stats["a + b"].max`."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        return _Stats(value) if type(value) is dict else value


def _capture(
    site: _Site,
    glob: Dict[str, Any],
    loc: Dict[str, Any],
    errors: Dict[str, str],
    light: bool = False,
) -> Tuple[Dict[str, Any], List[bool]]:
    """Values by name, and for each captured tensor that is no parameter whether it holds any."""
    values: Dict[str, Any] = {}
    filled: List[bool] = []
    pending: List[Tuple[Dict[str, Any], Any]] = []
    for code in site.capture[:64]:
        try:
            if light and not code.plain:
                errors[code.name] = "not evaluated here: the expression may run code"
                continue
            value = code.value(glob, loc)
            if _is_tensor(type(value)):
                out = _tensor(value, light, pending)
                if "Parameter" not in [c.__name__ for c in type(value).__mro__]:
                    filled.append(0 not in out["shape"])
                values[code.name] = out
            else:
                values[code.name] = _show(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors[code.name] = _describe(error)
    _measure(pending)
    return values, filled


def _is_tensor(kind: type) -> bool:
    """By the type alone: touching a lazy handle that stands for a tensor has ended a server."""
    base = getattr(sys.modules.get("torch"), "Tensor", None)
    return base is not None and base in kind.__mro__


def _tensor(value: Any, light: bool, pending: List[Tuple[Dict[str, Any], Any]]) -> Dict[str, Any]:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        shape = [int(size) for size in value.shape]
        out: Dict[str, Any] = {
            "t": "tensor",
            "shape": shape,
            "dtype": str(value.dtype).replace("torch.", ""),
            "device": str(value.device),
        }
        numel = 1
        for size in shape:
            numel *= size
        why = _unreadable(type(value), value, numel, light)
        if why:
            out["why"] = why
            return out
        out["n"] = numel
        try:
            with torch.no_grad():
                pending.append((out, _statistics(torch, value.detach(), numel, out)))
        except Exception as error:
            out["why"] = _describe(error)
    return out


def _unreadable(kind: type, value: Any, numel: int, light: bool) -> str:
    torch = sys.modules["torch"]
    if light:
        return "not measured here"
    for base in kind.__mro__:
        if base is torch.Tensor:
            break
        if "__torch_dispatch__" in base.__dict__:
            return "%s: its data are not read" % base.__name__
    if value.device.type == "meta":
        return "meta tensor: no data"
    if value.layout is not torch.strided:
        return "layout %s" % value.layout
    if value.is_quantized:
        return "quantized"
    return "" if numel else "empty"


def _statistics(torch: Any, data: Any, numel: int, out: Dict[str, Any]) -> Any:
    """Mean, std, min, max, NaN, Inf, zero share, leading values: one vector, on the device."""
    if data.is_complex():
        data, out["part"] = data.real, "real"
    head = data[(0,) * (data.dim() - 1)][:5] if data.dim() else data.reshape(1)
    if numel > _EXACT:
        data, out["sampled"] = _thin(data)
    exact = not data.is_floating_point() or data.dtype is torch.float64
    data = data.double() if exact else data.float()
    std, mean = torch.std_mean(data, unbiased=False)
    few = torch.stack(
        [
            mean.double(),
            std.double(),
            data.min().double(),
            data.max().double(),
            data.isnan().sum().double(),
            data.isinf().sum().double(),
            (data == 0).sum().double() / data.numel(),
        ]
    )
    return torch.cat([few, head.double() if exact else head.float().double()])


def _thin(data: Any) -> Tuple[Any, int]:
    """A strided view of at most `_SAMPLE` elements; odd steps, so as not to meet one column."""
    while data.numel() > _SAMPLE:
        sizes = list(data.shape)
        widest = sizes.index(max(sizes))
        step = min(sizes[widest], -(-data.numel() // _SAMPLE)) | 1
        data = data[(slice(None),) * widest + (slice(None, None, step),)]
    return data, int(data.numel())


def _measure(pending: List[Tuple[Dict[str, Any], Any]]) -> None:
    """Fetch all statistics of one device in one copy."""
    if not pending:
        return
    torch = sys.modules["torch"]
    devices = {out["device"] for out, _ in pending}
    for device in devices:
        mine = [(out, vector) for out, vector in pending if out["device"] == device]
        try:
            with torch.no_grad():
                numbers = iter(torch.cat([vector for _, vector in mine]).tolist())
        except Exception as error:
            for out, _ in mine:
                out["why"] = _describe(error)
            continue
        for out, vector in mine:
            whole = out["dtype"].startswith(("int", "uint", "bool"))
            taken = [_rounded(number, whole) for number in itertools.islice(numbers, len(vector))]
            for name, number in zip(("mean", "std", "min", "max", "nan", "inf", "zero"), taken):
                out[name] = number if name in ("min", "max") else _rounded(number, False)
            out["nan"], out["inf"], out["head"] = int(taken[4]), int(taken[5]), taken[7:]


def _rounded(number: float, whole: bool) -> float:
    if not math.isfinite(number):
        return number
    return int(number) if whole and number == int(number) else float("%.6g" % number)


def _show(value: Any) -> Any:
    """A value as JSON: scalars as they are, everything else as its type and a bounded text."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int and value.bit_length() < 64:
        return value
    if kind is str:
        if len(value) <= _TEXT:
            return value
        return {"t": "str", "text": value[:_TEXT], "len": len(value)}
    if enum.Enum in kind.__mro__:
        return {"t": "enum", "text": _text(value)}
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray" and hasattr(kind, "item"):
        return _show(value.item())
    if _is_array(kind):
        shape = [int(size) for size in value.shape]
        dtype = str(getattr(value, "dtype", ""))[:40]
        return {"t": "tensor", "shape": shape, "dtype": dtype, "why": "not a torch tensor"}
    return {"t": kind.__name__, "text": _text(value)[:_TEXT]}


def _is_array(kind: type) -> bool:
    """Array-likes by their class; beside torch only numpy's, since others may be lazy handles."""
    if kind.__module__ == "numpy":
        return kind.__name__ == "ndarray"
    return "torch" not in sys.modules and hasattr(kind, "shape") and not issubclass(kind, type)


def _text(value: Any, depth: int = 0) -> str:
    """Our own rendering: no code of the server's runs, and it ends."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return repr(value)
    if kind is int:
        return repr(value) if value.bit_length() < 256 else "int of %d bits" % value.bit_length()
    if kind is str or kind is bytes:
        return repr(value[:60]) + ("..." if len(value) > 60 else "")
    if enum.Enum in kind.__mro__:
        name = getattr(value, "_name_", None)
        return "%s.%s" % (kind.__name__, name if type(name) is str else "?")
    if _is_tensor(kind):
        return "tensor(%s)" % ", ".join(str(int(size)) for size in value.shape)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout"):
        return str(value)
    for base, left, right in ((list, "[", "]"), (tuple, "(", ")"), (dict, "{", "}")):
        if base in kind.__mro__ and depth < 3:
            return left + _items(base, value, depth) + right
    if base is dict and (set in kind.__mro__ or frozenset in kind.__mro__) and depth < 3:
        return "{" + _items(set if set in kind.__mro__ else frozenset, value, depth) + "}"
    return "<%s.%s>" % (kind.__module__, kind.__qualname__)


def _items(base: Any, value: Any, depth: int) -> str:
    """Up to eight items; the base class's own methods, whatever a subclass overrides."""
    size = base.__len__(value)
    if base is dict:
        pairs = itertools.islice(dict.items(value), 8)
        texts = ["%s: %s" % (_text(k, depth + 1), _text(v, depth + 1)) for k, v in pairs]
    else:
        texts = [_text(item, depth + 1) for item in itertools.islice(base.__iter__(value), 8)]
    more = ["... %d in all" % size] if size > 8 else []
    end = "," if base is tuple and size == 1 else ""
    return ", ".join(texts + more) + end


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "(no text)"
    return "%s: %s" % (type(error).__name__, text[:_TEXT])


def _mangle(tree: ast.AST, owner: Optional[str]) -> None:
    """Private names as the compiler would see them inside the class."""
    stem = (owner or "").lstrip("_")
    for node in ast.walk(tree) if stem else ():
        for field in ("id", "attr", "arg"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                setattr(node, field, "_%s%s" % (stem, name))


# --- who we are ----------------------------------------------------------------------------------


def _title() -> str:
    """The process title, or the first words of the command line: later ones may be secrets."""
    if not _state.title.startswith("sglang::"):  # it is set some time after the start
        try:
            with open("/proc/self/cmdline", "rb") as stream:
                words = stream.read(4096).decode("utf-8", "replace").split("\0")
        except OSError:
            words = list(sys.argv)
        _state.title = " ".join([word for word in words if word][:3])[:80]
    return _state.title


def _ranks() -> Dict[str, int]:
    known = _state.ranks
    if "rank" in known:
        return known
    if "sglang::" in _title():
        for name, number in re.findall(r"_([A-Z]+)(\d+)", _state.title):
            known[name.lower()] = int(number)
    try:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            known["rank"] = int(dist.get_rank())
    except Exception:
        return known
    groups = sys.modules.get("sglang.srt.distributed.parallel_state")
    for name, ask in (("tp", "get_tensor_model_parallel_rank"), ("pp", "get_pp_group")):
        try:
            if name not in known and groups is not None:
                found = getattr(groups, ask)()
                known[name] = int(getattr(found, "rank_in_group", found))
        except Exception:
            continue  # not initialised yet, or not in this release
    return known


def _requests(loc: Dict[str, Any]) -> List[str]:
    """Ids of the first requests of the batch that the frame shows."""
    try:
        found = getattr(loc.get("forward_batch"), "rids", None)
        if not isinstance(found, (list, tuple)):
            batch = loc.get("batch")
            reqs = getattr(batch, "reqs", None) or [loc.get("req")]
            found = [getattr(req, "rid", None) for req in itertools.islice(reqs, 4)]
        return [rid[:64] for rid in itertools.islice(found, 4) if type(rid) is str]
    except Exception:
        return []


# --- records -------------------------------------------------------------------------------------


def _emit(kind: str, site: str, note: str = "", **more: Any) -> None:
    with _lock:
        seq = _seq[site] = _seq.get(site, 0) + 1
    if _state.unsent:
        note = "%s%d lines did not reach stderr" % (note + "; " if note else "", _state.unsent)
    record: Dict[str, Any] = {
        "s": _state.session,
        "k": kind,
        "p": site,
        "h": _state.host,
        "pid": os.getpid(),
        "title": _title(),
        "ranks": _ranks(),
        "n": seq,
        "ph": _state.phase,
        "g": _state.generation,
        "m": round(_now(), 6),
        "w": round(time.time(), 3),
    }
    record.update((key, _finite(value)) for key, value in more.items() if value)
    if note:
        record["note"] = note
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    if len(text) > _LONGEST:
        size = len(text)
        record.update(v={}, key=[], e={"record": "left out: %d bytes of values" % size})
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    _write(_lines(text, "%d.%s.%d" % (record["pid"], site, seq)))


def _finite(value: Any) -> Any:
    """JSON knows no NaN."""
    if type(value) is float and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _lines(text: str, name: str) -> List[bytes]:
    whole = _line(text)
    if len(whole) <= _LINE:
        return [whole]
    pieces = [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]
    size = len(pieces)
    parts = ({"part": [i, size], "id": name, "text": p} for i, p in enumerate(pieces, 1))
    return [_line(json.dumps(part, separators=(",", ":"))) for part in parts]


def _line(text: str) -> bytes:
    data = text.encode("ascii")
    return b"@sgldbg1 %d %s %08x\n" % (len(data), data, binascii.crc32(data) & 0xFFFFFFFF)


def _write(lines: List[bytes]) -> None:
    for line in lines:
        try:
            os.write(2, line)
        except OSError:  # closed, or a full pipe that does not block: all or nothing up to 4096
            _state.unsent += 1
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Opened anew each time: a server may close descriptors that it does not know.
        fd = os.open(os.path.join(_state.dir, "%d.jsonl" % os.getpid()), flags, 0o600)
        try:
            if os.fstat(fd).st_size < _SPOOL:
                os.write(fd, b"".join(lines))
        finally:
            os.close(fd)
    except OSError:
        return


# --- the table -----------------------------------------------------------------------------------


def _poll() -> None:
    """Look whether the table changed; at most one thread at a time does."""
    global _next_poll, _flags
    _next_poll = _now() + _POLL_S
    if not _poll_lock.acquire(False):
        return
    try:
        _flags = _find_flags()
        stamp, table = _read_table(_state.stamp)
        if stamp != _state.stamp:
            _state.stamp = stamp
            _adopt(table)
        _report_cut(2)
    except Exception:
        _adopt(None)
    finally:
        _poll_lock.release()


def _read_table(known: Any) -> Tuple[Any, Any]:
    """The file's stamp and, where it differs from the known one, its content."""
    try:
        fd = os.open(os.path.join(_state.dir, "table.json"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, None
    try:
        info = os.fstat(fd)
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
        if stamp == known:
            return stamp, None
        # Its expressions are evaluated here: nobody else may be able to write them.
        ours = info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o022
        if not ours or not stat.S_ISREG(info.st_mode) or info.st_size > 4 << 20:
            return stamp, None
        data = b""
        while len(data) < info.st_size:
            chunk = os.read(fd, info.st_size - len(data))
            if not chunk:
                break
            data += chunk
        return stamp, json.loads(data.decode("utf-8"))
    finally:
        os.close(fd)


def _adopt(table: Any) -> None:
    """Do what the table says from now on; counters start anew where it says something new."""
    global _live
    if table is None or table.get("session") != _state.session or table.get("over"):
        _report_cut(1)
        _live = frozenset()
        _state.sites, _state.modules, _state.table = {}, {}, None
        return
    asked = (table["generation"], table["phase"], table["sites"])
    if asked == _state.table:
        return
    _report_cut(1)
    armed = table["phase"] == "armed"
    sites = {name: _Site(name, spec, armed) for name, spec in table["sites"].items()}
    modules: Dict[str, List[str]] = {}
    for name, spec in table["sites"].items():
        path = re.sub(r"(/__init__)?\.py$", "", str(spec.get("file", "")))
        modules.setdefault(path.replace("/", "."), []).append(name)
    _state.table, _state.generation, _state.phase = asked, table["generation"], table["phase"]
    _state.sites, _state.modules = sites, modules
    with _lock:
        _cut.clear()
        _live = frozenset(sites)
    for module in modules:
        if module in sys.modules:
            _announce(module)


def _report_cut(factor: int) -> None:
    """Say how often spent sites were reached since, each time the number has doubled."""
    for name, site in list(_state.sites.items()):
        count = _cut.get(name, 0)
        if not site.spent or not count or count < site.reported * factor or count == site.reported:
            continue
        if factor > 1 and _now() < site.next_report:
            continue
        site.reported, site.next_report = count, _now() + 1
        _emit("spent", name, note="reached %d more times" % count)


def _announce(module: str) -> None:
    for site in _state.modules.get(module, ()):
        if site not in _state.announced:
            _state.announced.add(site)
            _emit("import", site, note=module)


class _Watcher:
    """Stands in `sys.meta_path`, finds nothing, and sees patched modules being imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        try:
            if _compiling is _unbound:  # bound late, it would cost dynamo a recompile
                _unbound()
            if name in _state.modules:
                _announce(name)
        except Exception:
            return


def _after_fork() -> None:
    """A fork may have happened while another thread held a lock; the child counts for itself."""
    global _lock, _poll_lock
    _lock, _poll_lock = threading.Lock(), threading.Lock()
    _seq.clear()
    _state.title, _state.ranks = "", {}


def _leave() -> None:
    try:
        _report_cut(1)
    except Exception:
        return


def _start(config: Dict[str, str]) -> None:
    """Called by the last line of the placed file, once per process."""
    try:
        _state.session, _state.host = config["session"], config["host"]
        _state.dir = config["dir"]
        sys.meta_path.insert(0, _Watcher())
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_leave)
        _poll()
    except Exception:
        return
