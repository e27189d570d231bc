"""The EAGLE-3 draft of the miniature: guesses the target's next words from its hidden states.

The names and the order of events are those of SGLang's file of this name, the arithmetic is not.
"""

from __future__ import annotations

from ..model_executor.forward_batch_info import ForwardBatch
from ..tensor import Embedding, Linear, Tensor, one_hot
from .llama import HIDDEN_SIZE, VOCAB_SIZE, next_state, state_token


class LlamaDecoderLayer:
    """From a token and the state before it to the state after it."""

    def __call__(self, positions: Tensor, embeds: Tensor, hidden_states: Tensor) -> Tensor:
        tokens, states = embeds.argmax(), hidden_states.argmax()
        rows = [
            one_hot(next_state(states[i], tokens[i]), HIDDEN_SIZE) for i in range(len(positions))
        ]
        return Tensor(rows, embeds.dtype, HIDDEN_SIZE)


class LlamaModel:
    """Embedding, fusion of the target's layers, one decoder layer."""

    def __init__(self, hidden_size: int = HIDDEN_SIZE, num_aux_hidden_states: int = 3) -> None:
        self.embed_tokens = Embedding([one_hot(i, hidden_size) for i in range(VOCAB_SIZE)])
        fused = [one_hot(i, hidden_size) * num_aux_hidden_states for i in range(hidden_size)]
        self.fc = Linear(fused)
        self.midlayer = LlamaDecoderLayer()

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        forward_batch: ForwardBatch,
        input_embeds: Tensor | None = None,
    ) -> Tensor:
        """The draft's own hidden states, one row per token."""
        assert forward_batch.spec_info is not None
        embeds = self.embed_tokens(input_ids) if input_embeds is None else input_embeds

        hidden_states = forward_batch.spec_info.hidden_states
        if hidden_states.shape[-1] != embeds.shape[-1]:
            hidden_states = self.fc(hidden_states)

        # idle batch
        if hidden_states.shape[0] == 0:
            return hidden_states

        return self.midlayer(positions, embeds, hidden_states)


class LlamaForCausalLMEagle3:
    """The draft with its head."""

    def __init__(self) -> None:
        self.model = LlamaModel()

    def forward(
        self, input_ids: Tensor, positions: Tensor, forward_batch: ForwardBatch
    ) -> tuple[list[int], Tensor]:
        """For every token the guess at what follows, and the hidden states to go on from."""
        hidden_states = self.model.forward(input_ids, positions, forward_batch)
        return [state_token(state) for state in hidden_states.argmax()], hidden_states
