"""Attention over SGLang's paged key/value pool, one request at a time.

The `intel_amx` backend of 0.5.16 works out the sequence length that holds the new tokens too and
then passes the committed length all the same, in the verify pass and in draft steps (0.5.23 passes
the right one). Both functions therefore look where the new keys lie; else the output would differ
from that of plain decoding.
"""

import torch

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")


def attend(query, key, value, scale, cap, window):
    """Causal attention where the last query stands at the last key; float32 inside.

    `query` is [tokens, heads, width], `key` and `value` [length, key/value heads, width].
    """
    share = query.shape[1] // key.shape[1]
    q = query.float().transpose(0, 1)
    k = key.float().transpose(0, 1).repeat_interleave(share, dim=0)
    v = value.float().transpose(0, 1).repeat_interleave(share, dim=0)
    score = torch.matmul(q, k.transpose(1, 2)) * scale
    if cap > 0:
        score = torch.tanh(score / cap) * cap
    length, tokens = key.shape[0], query.shape[0]
    # distance of each key behind each query; negative ones lie in its future
    behind = torch.arange(length - tokens, length).unsqueeze(1) - torch.arange(length)
    hidden = behind < 0
    if window > 0:
        hidden |= behind >= window
    score = score.masked_fill(hidden, float("-inf"))
    return torch.matmul(torch.softmax(score, dim=-1), v).transpose(0, 1)


def decode(
    query,
    keys,
    values,
    output,
    new_key,
    new_value,
    slots,
    logits,
    req_to_token,
    requests,
    lengths,
    scale,
    cap,
    cross,
    window,
    encoder_lengths,
    sinks,
):
    """Store one new key and value per request at `slots`, then attend to the whole row."""
    if new_key is not None:
        keys[slots] = new_key.view(-1, *keys.shape[1:]).to(keys.dtype)
        values[slots] = new_value.view(-1, *values.shape[1:]).to(values.dtype)
    for i in range(query.shape[0]):
        row, committed = req_to_token[requests[i]], int(lengths[i])
        length = committed if slots is None else _end_at(row, committed, slots[i])
        used = row[:length].long()
        one = slice(i, i + 1)
        output[one] = attend(query[one], keys[used], values[used], scale, cap, window)


def _end_at(row, committed, slot):
    """The length of a row that ends with `slot`, which stands at or after the committed end."""
    first = max(committed - 1, 0)
    found = torch.nonzero(row[first:] == slot)
    return first + int(found[0]) + 1 if found.numel() else committed


def extend(
    query,
    new_key,
    new_value,
    output,
    keys,
    values,
    req_to_token,
    requests,
    lengths,
    extend_lengths,
    extend_starts,
    max_extend,
    scale,
    cap,
    cross,
    window,
    encoder_lengths,
    sinks,
    tree_mask,
):
    """Attend for several new tokens per request, whose keys and values the caller has stored."""
    if tree_mask is not None:
        raise NotImplementedError("the stand-in knows one branch: --speculative-eagle-topk 1")
    for i, request in enumerate(requests.tolist()):
        row, length, tokens = req_to_token[request], int(lengths[i]), int(extend_lengths[i])
        part = slice(int(extend_starts[i]), int(extend_starts[i]) + tokens)
        if new_key is not None and not cross:
            new = new_key[part].view(-1, *keys.shape[1:]).to(keys.dtype)
            stored = keys[row[max(length - tokens, 0) : length].long()]
            if not torch.equal(stored, new):
                length += tokens
        used = row[:length].long()
        output[part] = attend(query[part], keys[used], values[used], scale, cap, window)


def _register(name, schema, function):
    _LIBRARY.define(f"{name}({schema}) -> ()")
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")


_register(
    "decode_attention_cpu",
    "Tensor query, Tensor(a!) keys, Tensor(b!) values, Tensor(c!) output, Tensor? new_key,"
    " Tensor? new_value, Tensor? slots, Tensor? logits, Tensor req_to_token, Tensor requests,"
    " Tensor lengths, float scale, float cap, bool cross, int window, Tensor? encoder_lengths,"
    " Tensor? sinks",
    decode,
)
_register(
    "extend_attention_cpu",
    "Tensor query, Tensor? new_key, Tensor? new_value, Tensor(a!) output, Tensor keys,"
    " Tensor values, Tensor req_to_token, Tensor requests, Tensor lengths, Tensor extend_lengths,"
    " Tensor extend_starts, int max_extend, float scale, float cap, bool cross, int window,"
    " Tensor? encoder_lengths, Tensor? sinks, Tensor? tree_mask",
    extend,
)
