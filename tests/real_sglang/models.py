"""Writes two tiny models with random weights: a Llama target and its EAGLE-3 draft.

Run by the environment's own interpreter: `python models.py FOLDER`. The seed is fixed, so that a
prompt has one answer on every machine with the same torch.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

HIDDEN = 64  # hidden states of one layer are this wide, fused ones three times as wide
MLP = 2 * HIDDEN
HEADS, KV_HEADS, HEAD_WIDTH = 4, 2, 16  # both divide by two: TP 2
TARGET_LAYERS = 4
AUX_LAYERS = [0, 1, 2]  # the target's layers that the draft's `fc` fuses
CONTEXT = 512
MARKS = ["<s>", "</s>", "<pad>"]
VOCABULARY = 320  # three marks and 256 bytes, rounded up: vocabulary shards of 64 rows
SPREAD = 0.08  # of the weights; enough that the answer depends on the prompt


def write_tokenizer(folder):
    """One token per byte, so that any text can be encoded and there is nothing to train."""
    tokens = MARKS + sorted(pre_tokenizers.ByteLevel.alphabet())
    model = BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(MARKS)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": MARKS[0],
        "eos_token": MARKS[1],
        "pad_token": MARKS[2],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


def write_config(folder, architecture, layers, **more):
    """A Llama configuration, with what is particular to one model on top."""
    settings = {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps({**settings, **more}, indent=2))


def random(*shape):
    """Weights around zero."""
    return torch.randn(*shape) * SPREAD


def layer_weights(name, attention_input):
    """One decoder layer; the draft's attention reads embedding and hidden state side by side."""
    query, key = HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
    weights = {
        "self_attn.q_proj": random(query, attention_input),
        "self_attn.k_proj": random(key, attention_input),
        "self_attn.v_proj": random(key, attention_input),
        "self_attn.o_proj": random(HIDDEN, query),
        "mlp.gate_proj": random(MLP, HIDDEN),
        "mlp.up_proj": random(MLP, HIDDEN),
        "mlp.down_proj": random(HIDDEN, MLP),
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    return {f"{name}.{part}.weight": weight for part, weight in weights.items()}


def write_target(folder):
    """The model that answers."""
    write_config(folder, "LlamaForCausalLM", TARGET_LAYERS)
    weights = {
        "model.embed_tokens.weight": random(VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": random(VOCABULARY, HIDDEN),
    }
    for number in range(TARGET_LAYERS):
        weights.update(layer_weights(f"model.layers.{number}", HIDDEN))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_draft(folder):
    """The EAGLE-3 head: `fc` takes three hidden states to one; its vocabulary is the target's."""
    eagle = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": AUX_LAYERS}
    write_config(
        folder, "LlamaForCausalLMEagle3", 1, draft_vocab_size=VOCABULARY, eagle_config=eagle
    )
    weights = {
        "fc.weight": random(HIDDEN, len(AUX_LAYERS) * HIDDEN),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": random(VOCABULARY, HIDDEN),
        "d2t": torch.zeros(VOCABULARY, dtype=torch.int64),
        "t2d": torch.ones(VOCABULARY, dtype=torch.bool),
    }
    weights.update(layer_weights("midlayer", 2 * HIDDEN))
    # Finds no parameter: what a renamed module leaves in a checkpoint, dropped without a word.
    weights["midlayer.renamed_proj.weight"] = torch.zeros(HIDDEN, HIDDEN)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def main(folder):
    """Write `folder`/target and `folder`/draft."""
    torch.manual_seed(0)
    for name, write in (("target", write_target), ("draft", write_draft)):
        model = Path(folder) / name
        model.mkdir(parents=True)
        write_tokenizer(model)
        write(model)


if __name__ == "__main__":
    main(sys.argv[1])
