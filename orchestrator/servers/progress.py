"""What a starting server is doing, from the last lines of its log; best effort, never needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OF = r".*?\| *(\d+)/(\d+)"
# The words of SGLang's log from 0.4.5 to 0.5.23; of two that fit a line the later one counts. What
# is in a group is shown; a group that took nothing leaves its bracket out.
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"server_args=ServerArgs\("), "starting its workers"),
    # `torch distributed` until it was put under a name of its own, after 0.5.20.
    (re.compile(r"Init (?:torch distributed|parallel) begin"), "waiting for all ranks"),
    (re.compile(r"Init (?:torch distributed|parallel) ends"), "all ranks have met"),
    (re.compile(r"Load weight begin"), "loading weights"),
    # Shards of each format, and the loaders that stream: Runai, Fastsafetensor, InstantTensor.
    (re.compile(r"[Ll]oading (?:\w+ )*shards:" + _OF), "loading weights: {0} of {1}"),
    (re.compile(r"Loading safetensors using [\w ]+:" + _OF), "loading weights: {0} of {1}"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"Memory pool end|(?:KV|Mamba) Cache is allocated"), "memory pool allocated"),
    # `cuda graph`, `cpu graph`, and from 0.5.15 on for which role: `target decode CUDA graph`.
    (
        re.compile(r"Capture (?:(.*?) )??(?:\w+ )?graph begin", re.IGNORECASE),
        "capturing graphs ({0})",
    ),
    (re.compile(r"Capturing (?:batches|num tokens|prefill shape).*?:" + _OF),
     "capturing graphs: {0} of {1}"),
    (re.compile(r"Compiling num tokens.*?:" + _OF), "compiling graphs: {0} of {1}"),
    (re.compile(r"Capture .*graph end", re.IGNORECASE), "graphs captured"),
    (re.compile(r"Try DeepGEMM JIT Compiling"), "compiling DeepGEMM kernels"),
    (re.compile(r"DeepGEMM warmup:" + _OF), "compiling DeepGEMM kernels: {0} of {1}"),
    (re.compile(r"Running FlashInfer autotune"), "tuning kernels"),
    (re.compile(r"FlashInfer autotune completed"), "kernels tuned"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "warming up"),
    (re.compile(r"fired up and ready to roll"), "warmed up"),
)  # fmt: skip


def find_progress(lines: Sequence[str]) -> str:
    """The stage that the last line with a known one shows; empty where none does."""
    for line in reversed(lines):
        for pattern, text in reversed(_STAGES):
            match = pattern.search(line)
            if match:
                return text.format(*match.groups("")).replace(" ()", "")
    return ""
