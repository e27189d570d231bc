"""Decides whether a hit counts, evaluates what the table asks, and says why one does not."""

from __future__ import annotations

import signal
import time
from typing import Any, Dict, List, Optional, Tuple

from .records import emit
from .rendering import TEXT, Key, describe, is_scalar, is_tensor, key_text, plain_of, show
from .sites import SIMPLE, Code, Site, with_types
from .state import CUT, LIVE, STATE
from .tensors import measure, read_tensor
from .worker import find_ranks, is_idle, is_in_graph, read_requests

SKIPS = 16  # keys for which one skip reason is reported


def consider(site: Site, glob: Dict[str, Any], loc: Dict[str, Any]) -> None:
    """Go from the cheapest question to the dearest; write a record where all are answered yes."""
    site.hits += 1
    if site.ranks and is_wrong_rank(site):
        return
    if is_in_graph():
        skip(site, "graph warm-up or capture", glob, loc, light_keys(site, glob, loc))
        return
    raw = site.raw_keys(glob, loc)
    if raw in site.known:
        return
    if is_idle(loc):
        skip(site, "empty batch", glob, loc)
        return
    if site.when is not None:
        result, error = holds(site.when, glob, loc)
        if error:
            trouble(site.name, {"when": error})
            return
        if not result:
            skip(site, "`when` is false")
            return
    keys = tuple([key_of(code, glob, loc) for code in site.once_per])
    if reserve(site, keys):
        record(site, glob, loc, keys)
    if raw is not None and with_types(keys) in site.keys and site.every == 1:
        site.known.add(raw)


def record(site: Site, glob: Dict[str, Any], loc: Dict[str, Any], keys: Tuple[Any, ...]) -> None:
    """Use up what was reserved, or give it back."""
    done = False
    try:
        done = observe(site, glob, loc, keys)
    finally:
        if not done:
            with STATE.lock:
                site.emitted -= 1
                site.keys.discard(with_types(keys))
    if done and site.limit is not None and site.emitted >= site.limit:
        spend(site, "limit of %s reached" % count_of(site.limit, "record"))
    elif done and site.unique and len(site.keys) >= site.max_keys:
        keys_said = "%s recorded" % count_of(site.max_keys, "distinct key")
        spend(site, keys_said if site.once_per else "")


def reserve(site: Site, keys: Tuple[Any, ...]) -> bool:
    """Take one of the records that are left; threads never share one."""
    with STATE.lock:
        site.qualified += 1
        if site.spent or (site.qualified - 1) % site.every:
            return False
        known = with_types(keys)
        if site.unique and (known in site.keys or len(site.keys) >= site.max_keys):
            return False
        if site.limit is not None and site.emitted >= site.limit:
            return False
        if site.rate is not None:
            now = time.monotonic()
            most = max(1.0, float(site.rate))
            site.tokens = min(most, site.tokens + (now - site.refilled) * site.rate)
            site.refilled = now
            if site.tokens < 1:
                site.skips["rate"] = site.skips.get("rate", 0) + 1
                return False
            site.tokens -= 1
        if site.unique:
            site.keys.add(known)
        site.emitted += 1
        return True


def observe(site: Site, glob: Dict[str, Any], loc: Dict[str, Any], keys: Any) -> bool:
    """Evaluate everything and write the record; false where the hit turned out not to qualify."""
    errors: Dict[str, str] = {}
    values, tensors = read_captures(site, glob, loc, errors)
    if tensors and not any(tensors):
        skip(site, "empty batch", glob, loc)
        return False
    if site.emit_if is not None:
        wanted, error = holds(site.emit_if, glob, dict(loc, stats=Stats(values)))
        if error:
            errors["emit_if"] = error
        elif not wanted:
            skip(site, "`emit_if` is false")
            return False
    results: Dict[str, Optional[bool]] = {}
    for that, when in site.expect:
        asked, error = (True, "") if when is None else holds(when, glob, loc)
        if not error and asked:
            asked, error = holds(that, glob, loc)
            results[that.name] = asked
        elif not error:
            results[that.name] = None
        if error:
            errors[that.name] = error
            results.pop(that.name, None)
    note = ", ".join("%s %d" % pair for pair in sorted(site.skips.items()))
    emit(
        "hit",
        site.name,
        note="not counted: " + note if note else "",
        v=values,
        key=shown(keys),
        e=errors,
        x=results,
        req=read_requests(loc),
    )
    return True


def holds(code: Code, glob: Dict[str, Any], loc: Dict[str, Any]) -> Tuple[bool, str]:
    try:
        return bool(code.value(glob, loc)), ""
    except BaseException as error:  # an expression may even raise SystemExit
        if is_the_servers(error):
            raise
        return False, describe(error)


def key_of(code: Code, glob: Dict[str, Any], loc: Dict[str, Any], light: bool = False) -> Any:
    """A key that can be kept: never a tensor, never an object of the server's.

    With `light` no tensor is read: a copy to the host would end the capture of a graph.
    """
    try:
        value = code.value(glob, loc)
        if type(value) not in SIMPLE and not (light and is_tensor(type(value))):
            value = single_of(value)
        kind = type(value)
        if kind is str and len(value) > TEXT:
            return key_text(value)
        is_plain = kind in SIMPLE or (kind is float and value == value)  # NaN equals nothing
        return value if is_plain else key_text(value)
    except BaseException as error:
        if is_the_servers(error):
            raise
        return Key("error: " + describe(error))


def shown(keys: Tuple[Any, ...]) -> List[Any]:
    """Keys as a record has them."""
    return [key if type(key) is Key else show(key) for key in keys]


def single_of(value: Any) -> Any:
    """The number that a tensor of one element, or a number of numpy's, holds; else the value."""
    kind = type(value)
    if is_scalar(kind):
        return plain_of(value)
    numel = getattr(value, "numel", None) if is_tensor(kind) else None
    return value.item() if numel is not None and numel() == 1 else value


def is_the_servers(error: BaseException) -> bool:
    """Whether the server wants to end: Ctrl-C, or an exit that its own signal handler raised.

    It only happened to interrupt an expression, and is not ours to swallow.
    """
    if isinstance(error, (KeyboardInterrupt, Exception)):
        return isinstance(error, KeyboardInterrupt)
    codes = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # of a partial
        for held in [handler] + [c.__dict__.get("__call__") for c in type(handler).__mro__]:
            codes.add(getattr(held, "__code__", None))
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def light_keys(site: Site, glob: Dict[str, Any], loc: Dict[str, Any]) -> Tuple[Any, ...]:
    return tuple([key_of(c, glob, loc, light=True) if c.plain else None for c in site.once_per])


def skip(
    site: Site,
    reason: str,
    glob: Optional[Dict[str, Any]] = None,
    loc: Optional[Dict[str, Any]] = None,
    keys: Tuple[Any, ...] = (),
) -> None:
    """Count a hit that does not qualify; its reason is reported once (and once per key)."""
    known = (reason, with_types(keys))
    with STATE.lock:
        site.skips[reason] = site.skips.get(reason, 0) + 1
        if known in site.skipped or len(site.skipped) >= SKIPS:
            return
        site.skipped.add(known)
    errors: Dict[str, str] = {}
    values: Dict[str, Any] = {}
    if glob is not None and loc is not None:
        values = read_captures(site, glob, loc, errors, light=True)[0]
    req = read_requests(loc or {})
    emit("skip", site.name, note=reason, v=values, key=shown(keys), e=errors, req=req)


def spend(site: Site, why: str) -> None:
    with STATE.lock:
        if site.spent:
            return
        site.spent = True
        LIVE.discard(site.name)
        CUT.pop(site.name, None)
    if why:
        skipped = "".join(", %s %d" % pair for pair in sorted(site.skips.items()))
        emit("spent", site.name, note="%s after %s%s" % (why, count_of(site.hits, "hit"), skipped))


def count_of(number: int, noun: str) -> str:
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def is_wrong_rank(site: Site) -> bool:
    ranks = find_ranks()
    rank = ranks.get("rank", ranks.get("tp"))
    if rank is None or rank in site.ranks:
        return False
    skip(site, "rank %d is not asked" % rank)
    spend(site, "")
    return True


def trouble(site: str, errors: Dict[str, str]) -> None:
    """Report what could not even be decided, a few times per site; the last resort is silence."""
    try:
        here = STATE.sites[site]
        here.troubles += 1
        if here.troubles <= 3:
            emit("error", site, e=errors)
    except Exception:
        return


class Stats(dict):  # type: ignore[type-arg]
    """The measured values, for `emit_if`: `stats.hidden_states.nan`, `stats["a + b"].max`."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        return Stats(value) if type(value) is dict else value


def read_captures(
    site: Site,
    glob: Dict[str, Any],
    loc: Dict[str, Any],
    errors: Dict[str, str],
    light: bool = False,
) -> Tuple[Dict[str, Any], List[bool]]:
    """Values by name, and for each captured tensor that is no parameter whether it holds any."""
    values: Dict[str, Any] = {}
    filled: List[bool] = []
    pending: List[Tuple[Dict[str, Any], Any]] = []
    for code in site.capture:
        try:
            if light and not code.plain:
                errors[code.name] = "not evaluated here: the expression may run code"
                continue
            value = code.value(glob, loc)
            if is_tensor(type(value)):
                out = read_tensor(value, light, pending)
                if "Parameter" not in [c.__name__ for c in type(value).__mro__]:
                    filled.append(0 not in out["shape"])
                values[code.name] = out
            else:
                values[code.name] = show(value)
        except BaseException as error:
            if is_the_servers(error):
                raise
            errors[code.name] = describe(error)
    measure(pending)
    return values, filled


def report_cut(factor: int) -> None:
    """Say how often spent sites were reached since, each time the number has doubled."""
    for name, site in list(STATE.sites.items()):
        count = CUT.get(name, 0)
        if not site.spent or not count or count < site.reported * factor or count == site.reported:
            continue
        if factor > 1 and time.monotonic() < site.next_report:
            continue
        site.reported, site.next_report = count, time.monotonic() + 1
        emit("spent", name, note="reached %d more times" % count)
