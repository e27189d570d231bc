"""Who this process is and what its server is doing, read from what the server has imported."""

from __future__ import annotations

import itertools
import re
import sys
from typing import Any, Callable, Dict, List, Tuple

from .state import STATE

FLAGS = (  # where SGLang keeps `get_is_capture_mode`, newest first
    "sglang.srt.model_executor.runner_utils.capture_mode",
    "sglang.srt.model_executor.cuda_graph_runner",
)


def read_title() -> str:
    """The process title, or the first words of the command line: later ones may be secrets."""
    if not STATE.title:
        try:
            with open("/proc/self/cmdline", "rb") as stream:
                words = stream.read(4096).decode("utf-8", "replace").split("\0")
        except OSError:
            words = list(sys.argv)
        STATE.title = " ".join([word for word in words if word][:3])[:80]
    return STATE.title


def find_ranks() -> Dict[str, int]:
    """Ranks by dimension (`tp`, `dp`, ...), and as `rank` the global one, as far as known yet."""
    if STATE.ranks is None:
        STATE.ranks = read_ranks()
    return STATE.ranks


def forget_unsure() -> None:
    """A worker gets its title and its ranks some time after its start: look again."""
    if not STATE.title.startswith("sglang::"):
        STATE.title = ""
    if STATE.ranks is not None and "rank" not in STATE.ranks:
        STATE.ranks = None


def read_ranks() -> Dict[str, int]:
    found: Dict[str, int] = {}
    if read_title().startswith("sglang::"):
        for name, number in re.findall(r"_((?:ATTN_|MOE_)?[A-Z]+)(\d+)", STATE.title):
            found[name.lower()] = int(number)
    try:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            found["rank"] = int(dist.get_rank())
    except Exception:
        return found
    groups = sys.modules.get("sglang.srt.distributed.parallel_state")
    for name, ask in (("tp", "get_tensor_model_parallel_rank"), ("pp", "get_pp_group")):
        try:
            if name not in found and groups is not None:
                answer = getattr(groups, ask)()
                found[name] = int(getattr(answer, "rank_in_group", answer))
        except Exception:
            continue  # not initialised yet, or not in this release
    return found


def read_requests(loc: Dict[str, Any]) -> List[str]:
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


def is_in_graph() -> bool:
    """During graph warm-up the data are zeros, during capture a copy to the host is an error."""
    for asks in STATE.flags:  # noqa: SIM110 - a generator costs more than the rest of this function
        if asks():
            return True
    return False


def find_flags() -> Tuple[Callable[[], bool], ...]:
    """What tells of graph warm-up and capture in this process, as far as it is imported."""
    found = [getattr(sys.modules.get(name), "get_is_capture_mode", None) for name in FLAGS]
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if getattr(cuda, "is_initialized", bool)():
        found.append(getattr(cuda, "is_current_stream_capturing", None))
    return tuple([flag for flag in found if flag is not None])


def is_idle(loc: Dict[str, Any]) -> bool:
    """Whether the server itself says that this batch holds no request."""
    for name in ("forward_batch", "batch"):
        batch = loc.get(name)
        if batch is None:
            continue
        size = getattr(batch, "batch_size", None)
        mode = getattr(batch, "forward_mode", None)
        if getattr(mode, "_name_", "") == "IDLE" or (type(size) is int and size == 0):
            return True
    return False
