"""The way into planning: what a host holds, and the plan made of that and the patches."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model.patch import Patch
from orchestrator.model.plan import Plan
from orchestrator.planning.view import HostView


def make_plan(
    session_id: str,
    patches: Sequence[Patch],
    views: Sequence[HostView],
    runtime_source: bytes,
) -> Plan:
    """The plan that applies all the patches on all these hosts, or `PatchError`.

    It depends on bytes only: hosts with equal bytes share one edit. A patch is all or nothing, and
    so are all patches on all hosts together; where several do not fit, the first is the error and
    carries the others.
    """
    # LibCST takes 0.2 s to import; whoever only needs `HostView` must not pay for it.
    from orchestrator.planning.making import make

    return make(session_id, patches, views, runtime_source)
