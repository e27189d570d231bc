"""Which probes stand in code that a server captures in CUDA graphs, where no Python runs later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.diagnostics import fold_hosts
from orchestrator.model.plan import Plan, Site

ADVICE = "add `--disable-cuda-graph` to `add_args` of `restart`"
# What a forward pass of SGLang runs, in every release from 0.4.5 to 0.5.23: the models and their
# layers, the draft's steps, and the all-reduce between them. Sampling comes behind the graph.
_FOLDERS = re.compile(r"[^/]+/srt/(models|layers)/(?!sampler\.py)")
_BESIDE = re.compile(
    r"(.*\.)?(draft_forward|GroupCoordinator\.all_reduce|tensor_model_parallel_all_reduce"
    r"|set_kv_buffer)"
)
# Of a model, what builds it, loads its weights or tells of it, by the function's name.
_ONCE = re.compile(
    r"(?!apply_|init_forward_metadata_in_graph)(__init__|__post_init__|_?(load|create|make|init|build|register|set|maybe_remap|post_load)_\w+"
    r"|\w*weights?\w*|get_\w*(config|name|modules?|embed_and_head|method|type)\w*)"
)
# Of a command line, whether the server captures nothing, or runs eagerly through its graphs.
_EAGER = re.compile(r"--(disable|debug)-cuda-graph(?![-\w])|--device[ =]cpu\b")


def note_graphs(plan: Plan, lives: Mapping[str, Sequence[str]]) -> list[str]:
    """One note for the probes in such code, on hosts whose debug life may capture graphs.

    `lives` are the command lines of the debug lives, by host.
    """
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, argv in lives.items():
        if _EAGER.search(" ".join(argv)):
            continue
        sites = (s for file in plan.of_host(host) for s in file.sites)
        inside = dict.fromkeys(s.site for s in sites if s.site in plan.table and is_captured(s))
        if inside:
            hosts.setdefault(tuple(inside), []).append(host)
    return [
        f"{fold_hosts(where)}: {_tell(sites)} in code that a server may capture in CUDA graphs,"
        f" where no Python runs after the capture: {ADVICE}"
        for sites, where in hosts.items()
    ]


def is_captured(site: Site) -> bool:
    """Whether a forward pass runs the function of a site; not those that run once at the start."""
    if site.scope is None:
        return False
    if _BESIDE.fullmatch(site.scope):
        return True
    name = site.scope.rpartition(".")[2]
    return _FOLDERS.match(site.file) is not None and _ONCE.fullmatch(name) is None


def _tell(sites: Sequence[str]) -> str:
    names = ", ".join(f"`{site}`" for site in sites)
    return f"{names} {'stands' if len(sites) == 1 else 'stand'}"
