"""The description of one pass through a model: its mode, its requests, what speculation adds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..tensor import Tensor


class ForwardMode(IntEnum):
    """Why a model is run."""

    EXTEND = 1
    DECODE = 2
    TARGET_VERIFY = 3
    DRAFT_EXTEND_V2 = 4
    IDLE = 5

    def is_extend(self) -> bool:
        """New tokens of a prompt, or tokens that the target has just accepted."""
        return self in (ForwardMode.EXTEND, ForwardMode.DRAFT_EXTEND_V2)

    def is_decode(self) -> bool:
        """One token per request."""
        return self == ForwardMode.DECODE

    def is_idle(self) -> bool:
        """No request here, but the other workers run."""
        return self == ForwardMode.IDLE


@dataclass
class EagleDraftInput:
    """The hidden states that the draft continues from: the target's, or its own."""

    hidden_states: Tensor


@dataclass
class ForwardBatch:
    """Everything about one pass but its tokens."""

    forward_mode: ForwardMode
    rids: list[str]
    positions: Tensor
    spec_info: EagleDraftInput | None = None

    @property
    def batch_size(self) -> int:
        """The number of requests in this pass."""
        return len(self.rids)
