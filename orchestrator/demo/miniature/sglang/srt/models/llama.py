"""The target: a deterministic stand-in for a Llama that speaks in sixty-four words."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..model_executor.forward_batch_info import ForwardBatch
from ..tensor import Tensor, cat, one_hot

VOCAB_SIZE = 64
HIDDEN_SIZE = 64
_SPOKEN = (
    "a all and as at be but by can day did do end far few for from go had has he her him his how "
    "if in is it let like long made may me more most my new no not now of old on one or our out "
    "own see she so than that the then they this to up us was we"
)
WORDS = _SPOKEN.split()


def next_state(state: int, token: int) -> int:
    """The target's state after one more token. Together with `state_token` it has period 64."""
    return (3 * state + 10 * token + 7) % HIDDEN_SIZE


def state_token(state: int) -> int:
    """The token that the target says in this state."""
    return (17 * state + 5) % VOCAB_SIZE


@dataclass
class LogitsProcessorOutput:
    """For every position the token that follows it, the state there, and the hidden states."""

    next_token_ids: list[int]
    states: list[int]
    hidden_states: Tensor


class LlamaForCausalLM:
    """The whole model on every worker: nothing is split, a rank only has its own copy.

    Its state is spread over three layers as noise that cancels out, so that only all three
    together tell the state: this is what an EAGLE-3 draft fuses with its `fc`.
    """

    def __init__(self) -> None:
        noise = random.Random(0)
        self.layers: list[tuple[list[float], list[float], list[float]]] = []
        for state in range(HIDDEN_SIZE):
            low = [noise.uniform(-4, 4) for _ in range(HIDDEN_SIZE)]
            middle = [noise.uniform(-4, 4) for _ in range(HIDDEN_SIZE)]
            truth = one_hot(state, HIDDEN_SIZE)
            high = [truth[i] - low[i] - middle[i] for i in range(HIDDEN_SIZE)]
            self.layers.append((low, middle, high))
        self.capture_aux_hidden_states = False

    def set_eagle3_layers_to_capture(self) -> None:
        """From now on hand out the states of three layers side by side, not just the last."""
        self.capture_aux_hidden_states = True

    def forward(
        self, input_ids: Tensor, positions: Tensor, forward_batch: ForwardBatch, state: int
    ) -> LogitsProcessorOutput:
        """Read `input_ids` from `state` on; the caller keeps the state as others keep a cache."""
        states = []
        for token in input_ids.tolist():
            state = next_state(state, token)
            states.append(state)
        depths = (0, 1, 2) if self.capture_aux_hidden_states else (2,)
        hidden_states = cat([self._layer(states, depth) for depth in depths])
        return LogitsProcessorOutput([state_token(s) for s in states], states, hidden_states)

    def _layer(self, states: list[int], depth: int) -> Tensor:
        return Tensor([self.layers[s][depth] for s in states], width=HIDDEN_SIZE)


def encode(text: str) -> list[int]:
    """One token per byte, so that every prompt has a length that its reader can check."""
    return [byte % VOCAB_SIZE for byte in text.encode()]


def decode(token_ids: list[int]) -> str:
    """The words of some output."""
    return "".join(" " + WORDS[token] for token in token_ids)
