"""In what a process differs from the description that it was started from."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ..proc import priority
from ..proc.describe import describe
from ..refusal import Refusal
from .systemd import unit

Shown = Callable[[Any], str]

# What the shell of a start script writes down for itself, and Slurm for each job anew.
_SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_")
_JOBS_OWN = (
    *("SLURM_JOBID", "SLURM_JOB_ID", "SLURM_TASK_PID", "SLURM_STEPID", "SLURM_STEP_ID"),
    *("SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_JOB_START_TIME"),
    *("SLURM_JOB_END_TIME", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"),
)


def compare(description: Mapping[str, Any], pid: int) -> List[str]:
    """One text per difference, such as `umask: 022, was 027`; empty when all is as it was.

    Values of environment variables are never shown, their names are.
    """
    try:
        now = describe(pid)
    except Refusal:
        return ["the process has ended"]
    differences: List[str] = []
    for name, shown in _PLAIN:
        if name in description and description[name] != now.get(name):
            is_now = shown(now[name]) if name in now else "unknown"
            differences.append("%s: %s, was %s" % (name, is_now, shown(description[name])))
    ignored = unit.OWN_VARIABLES + (_SHELLS_OWN + _JOBS_OWN if description.get("way") else ())
    differences += _compare_environ(description.get("environ"), now.get("environ"), ignored)
    differences += _compare_limits(description.get("rlimits") or {}, now.get("rlimits") or {})
    for name in ("stdout", "stderr"):
        before = _show_output(description.get(name))
        if before and before != _show_output(now[name]):
            differences.append("%s: %s, was %s" % (name, _show_output(now[name]), before))
    return differences


def _show_list(values: Any) -> str:
    return ",".join(str(value) for value in values) or "none"


def _show_mask(value: Any) -> str:
    return "%#x" % value


_PLAIN: Tuple[Tuple[str, Shown], ...] = (
    ("argv", lambda argv: " ".join(argv)),
    ("python", str),
    ("exe", str),
    ("cwd", str),
    ("uid", str),
    ("gid", str),
    ("groups", _show_list),
    ("umask", lambda value: "%03o" % value),
    ("affinity", _show_list),
    ("numa", str),
    ("mems_allowed", str),
    ("nice", str),
    ("scheduler", priority.name_scheduler),
    ("disk", priority.name_disk),
    ("oom_score_adj", str),
    ("uids", _show_list),
    ("gids", _show_list),
    ("ignored", _show_list),
    ("blocked", _show_list),
    ("odd_environ", _show_list),
    ("cap_bounding", _show_mask),
    ("cap_inheritable", _show_mask),
    ("cap_ambient", _show_mask),
    ("no_new_privs", str),
    ("huge_pages", str),
    ("personality", _show_mask),
    ("coredump_filter", _show_mask),
    ("timerslack_ns", str),
    ("cgroups", " ".join),
    ("namespaces", _show_list),
)


def _compare_environ(before: Any, now: Any, ignored: Sequence[str]) -> List[str]:
    if before is None:
        return []
    if now is None:
        return ["environ: unknown"]
    before = {name: value for name, value in before.items() if name not in ignored}
    now = {name: value for name, value in now.items() if name not in ignored}
    texts = {name: "is missing" for name in before if name not in now}
    texts.update({name: "is new" for name in now if name not in before})
    texts.update({n: "has another value" for n in before if n in now and before[n] != now[n]})
    said = ["%s %s" % (name, texts[name]) for name in sorted(texts)]
    return ["environ: %s" % ", ".join(said)] if said else []


def _compare_limits(before: Mapping[str, Any], now: Mapping[str, Any]) -> List[str]:
    differences = []
    for name in sorted(before):
        if now.get(name) != before[name]:
            is_now, was = _show_limits(now.get(name)), _show_limits(before[name])
            differences.append("%s: %s, was %s" % (name, is_now, was))
    return differences


def _show_limits(limits: Any) -> str:
    if limits is None:
        return "unknown"
    return "/".join("unlimited" if limit < 0 else str(limit) for limit in limits)


def _show_output(output: Any) -> str:
    if not output:
        return ""
    described: Dict[str, Any] = output
    return str(described.get("path") or described["kind"])
