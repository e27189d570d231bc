"""SGLang's options on a command line: which names mean one, and which words are whose values.

The tables hold what the releases from 0.4.5 to 0.5.23 define.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Each takes one value. argparse takes abbreviations of them, too, `--tp` among them.
NAMES = (
    ("--model-path", "--model"),
    ("--host",),
    ("--port",),
    ("--tp-size", "--tensor-parallel-size", "--tp"),
    ("--pp-size", "--pipeline-parallel-size", "--pp"),
    ("--dp-size", "--data-parallel-size", "--dp"),
    ("--ep-size", "--expert-parallel-size", "--ep"),
    ("--dcp-size", "--decode-context-parallel-size"),
    ("--attn-cp-size", "--attention-context-parallel-size"),
    ("--attn-dp-size", "--attention-data-parallel-size"),
    ("--moe-dp-size", "--moe-data-parallel-size"),
    ("--nnodes",),
    ("--dist-init-addr", "--nccl-init-addr"),
    ("--node-rank",),
    ("--disaggregation-mode",),
    ("--cuda-graph-prefill-max-context", "--context-bucket"),
    ("--hisparse-config", "--hierarchical-sparse-attention-extra-config"),
    ("--smg-http-sidecar-port", "--grpc-http-sidecar-port"),
    ("--speculative-draft-model-path", "--speculative-draft-model"),
)
# These take none, and nor does any option that begins as `_SWITCH` says.
SWITCH_NAMES = (
    ("--skip-server-warmup",),
    ("--enable-hierarchical-cache", "--enable-hicache"),
)
_SWITCH = re.compile(r"--(enable|disable|skip|no)-")
_OTHER_SWITCHES = """
--abort-on-priority-when-disabled --allow-auto-truncate --collect-tokens-histogram
--checkpoint-engine-wait-weights-before-ready --constrained-json-disable-any-whitespace
--dcp-replicate-q-proj --debug-cuda-graph --debug-tensor-dump-prefill-only
--delete-ckpt-after-loading --disaggregation-decode-enable-offload-kvcache
--disaggregation-decode-enable-radix-cache --disaggregation-enable-kv-checksum --dllm-fdfo
--elastic-ep-rejoin --encoder-only --enforce-disable-flashinfer-allreduce-fusion
--enforce-piecewise-cuda-graph --enforce-shared-experts-fusion --experts-shared-outer-loras
--export-metrics-to-file --flashinfer-mla-disable-ragged --grpc-mode
--incremental-streaming-output --is-embedding --keep-mm-feature-on-device
--language-model-only --language-only --log-requests --lora-strict-loading
--lora-use-virtual-experts --mlx-enable-sampling --mm-enable-dp-encoder --monokernel-backend
--ple-offload-embedding --pre-warm-nccl --prefill-only-disable-kv-cache
--prefill-round-robin-balance --quantize-and-serve --return-input-ids --return-output-ids
--remote-instance-weight-loader-start-seed-via-transfer-engine
--schedule-low-priority-values-first --show-time-cost --sleep-on-idle --smg-grpc-mode
--speculative-adaptive --speculative-dspark-align-verify-tokens-to-graph-tier
--speculative-enable-w4a4-mxfp4-megamoe --speculative-skip-dp-mlp-sync
--speculative-use-block-verification --speculative-use-rejection-sampling --stream-output
--stream-response-default-include-usage --strip-thinking-cache
--triton-attention-reduce-in-fp32 --trust-mm-content-hashes --trust-remote-code
--trust-request-chat-template --use-ray --weight-loader-disable-mmap
--weight-loader-drop-cache-after-load --weight-loader-prefetch-checkpoints
"""
_SWITCHES = frozenset(_OTHER_SWITCHES.split())
_SERVER = re.compile(r"(.*/)?launch_server\.py|\w+(\.\w+)*\.launch_server")
_MODEL = NAMES[0][0]

# `None` stands where a session's arguments go.
Line = Sequence[str | None]


class UnclearValuesError(ValueError):
    """Which words after a flag are its values, nobody can tell; `words` are all of them."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(" ".join(words))
        self.words = tuple(words)


def is_flag(word: str) -> bool:
    """Whether a word is an option rather than a value; a negative number is a value."""
    return word.startswith("-") and not re.fullmatch(r"-|-\d[\d.e+-]*", word)


def name_option(word: str) -> str:
    """The first name of the option that a word `--flag` or `--flag=value` gives."""
    flag = word.partition("=")[0]
    if len(flag) < 3 or flag in _SWITCHES:
        return flag
    groups = NAMES + SWITCH_NAMES
    exact = [names[0] for names in groups if flag in names]
    meant = exact or [names[0] for names in groups if any(n.startswith(flag) for n in names)]
    return meant[0] if flag.startswith("--") and len(meant) == 1 else flag


def take_option(line: list[str | None], given: Sequence[str], *, added: bool = False) -> list[str]:
    """Take every occurrence of an option with its values out of a line; returns what was taken.

    `given` is how the session writes it, and says how many values it has, with `added` also that
    it has none. Raises `UnclearValuesError`. What stands before the server's program is not its.
    """
    name = name_option(given[0])
    start, has_values_only = _find_arguments(line)
    said = _count_said(given, added=added)
    taken: list[str] = []
    index = start
    while index < len(line):
        word = line[index]
        if word is None or not is_flag(word) or name_option(word) != name:
            index += 1
            continue
        count = 0
        if "=" not in word:
            following = _list_following(line, index + 1)
            count = _count_values(word, following, said, has_values_only)
        taken += [str(one) for one in line[index : index + 1 + count]]
        del line[index : index + 1 + count]
    return taken


def _find_arguments(line: Line) -> tuple[int, bool]:
    """Where a server's own arguments begin, and whether each word there is a flag or its value.

    SGLang takes a model without a flag as the first word after `serve`, which other programs of
    that kind may take anywhere; what a start command of the user's takes, only they know.
    """
    words = [word or "" for word in line]
    for index, word in enumerate(words):
        if index and _SERVER.fullmatch(word):
            return index + 1, True
    if "serve" not in words[1:]:
        return 1, False
    start = words.index("serve", 1) + 1
    if start < len(words) and words[start] and not is_flag(words[start]):
        return start + 1, True
    return start, any(name_option(w) == _MODEL for w in words[start:] if is_flag(w))


def _list_following(line: Line, start: int) -> list[str]:
    """The words up to the next flag."""
    words: list[str] = []
    for word in line[start:]:
        if word is None or is_flag(word):
            break
        words.append(word)
    return words


def _count_said(given: Sequence[str], *, added: bool) -> int | None:
    """How many values the session writes; `--flag=` says that there are none."""
    _, equals, value = given[0].partition("=")
    if equals:
        return 1 if value or added else 0
    return len(given) - 1 if added or len(given) > 1 else None


def _count_values(
    flag: str, following: Sequence[str], said: int | None, has_values_only: bool
) -> int:
    name = name_option(flag)
    if not following or _SWITCH.match(name) or name in _SWITCHES:
        return 0
    if has_values_only:
        return len(following)
    if any(name == names[0] for names in NAMES):
        return 1
    if said == 0 or (said is not None and len(following) <= said):
        return min(said, len(following))
    raise UnclearValuesError([flag, *following])
