"""Decoding of one request, with or without a draft: the tokens are the target's either way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..model_executor.forward_batch_info import EagleDraftInput, ForwardBatch, ForwardMode
from ..models.llama import LlamaForCausalLM
from ..tensor import Tensor


@dataclass
class Decoded:
    """What became of one request; `verify_ct` counts the target's passes after the prompt."""

    output_ids: list[int] = field(default_factory=list)
    verify_ct: int = 0


class EAGLEWorker:
    """The target and, for a speculative algorithm, the draft.

    The fault that the demonstration looks for is made here as in SGLang: only `EAGLE3` has the
    target hand out three layers. With `EAGLE` an EAGLE-3 draft gets one layer and says nothing.
    """

    def __init__(self, algorithm: str | None, num_steps: int) -> None:
        self.target = LlamaForCausalLM()
        self.draft: Any = None
        self.num_steps = num_steps
        if algorithm:
            from ..models.llama_eagle3 import LlamaForCausalLMEagle3

            self.draft = LlamaForCausalLMEagle3()
        if algorithm == "EAGLE3":
            self.target.set_eagle3_layers_to_capture()

    def forward_batch_generation(self, rid: str, prompt: list[int], wanted: int) -> Decoded:
        """Exactly `wanted` tokens (at least one) after `prompt`."""
        batch = ForwardBatch(ForwardMode.EXTEND, [rid], _positions(0, len(prompt)))
        seen = self.target.forward(Tensor(prompt, "int64"), batch.positions, batch, 0)
        state, token = seen.states[-1], seen.next_token_ids[-1]
        decoded = Decoded([token])
        hidden = seen.hidden_states
        fresh, mode = [*prompt[1:], token], ForwardMode.EXTEND
        while True:
            at = len(prompt) + len(decoded.output_ids)
            drafted = self._draft(rid, fresh, at - len(fresh), mode, hidden)
            if len(decoded.output_ids) >= wanted:
                del decoded.output_ids[wanted:]
                return decoded
            checked = self._verify(rid, [decoded.output_ids[-1], *drafted], at - 1, state)
            fresh = checked.next_token_ids
            kept = 0
            while kept < len(drafted) and drafted[kept] == fresh[kept]:
                kept += 1
            fresh, mode = fresh[: kept + 1], ForwardMode.DRAFT_EXTEND_V2
            state, hidden = checked.states[kept], checked.hidden_states[: kept + 1]
            decoded.output_ids += fresh
            decoded.verify_ct += 1

    def _draft(
        self, rid: str, fresh: list[int], at: int, mode: ForwardMode, hidden: Tensor
    ) -> list[int]:
        """Extend the draft by the tokens it has not seen, then let it run ahead."""
        if self.draft is None:
            return []
        guesses: list[int] = []
        input_ids = fresh
        for _ in range(self.num_steps):
            positions = _positions(at, len(input_ids))
            batch = ForwardBatch(mode, [rid], positions, EagleDraftInput(hidden))
            found, own = self.draft.forward(Tensor(input_ids, "int64"), positions, batch)
            guesses.append(found[-1])
            at += len(input_ids)
            input_ids, hidden, mode = [found[-1]], own[-1:], ForwardMode.DECODE
        return guesses

    def _verify(self, rid: str, tokens: list[int], at: int, state: int) -> Any:
        mode = ForwardMode.TARGET_VERIFY if self.draft else ForwardMode.DECODE
        batch = ForwardBatch(mode, [rid], _positions(at, len(tokens)))
        return self.target.forward(Tensor(tokens, "int64"), batch.positions, batch, state)


def _positions(start: int, count: int) -> Tensor:
    return Tensor(list(range(start, start + count)), "int64")
