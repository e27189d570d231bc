"""Speculative decoding with one branch: the draft is a chain, and greedy decoding accepts it."""

import torch


def build_tree_kernel_efficient_cpu(
    parents,
    scores,
    lengths,
    tree_mask,
    positions,
    index,
    next_token,
    next_sibling,
    topk,
    depth,
    tokens,
    mask_mode,
):
    """Describe a chain of `tokens` draft tokens behind each committed sequence."""
    if topk != 1:
        raise NotImplementedError("the stand-in knows one branch: --speculative-eagle-topk 1")
    batch, order = lengths.numel(), torch.arange(tokens)
    positions.copy_((lengths.long().unsqueeze(1) + order).reshape(-1))
    index.copy_(torch.arange(batch * tokens).reshape(batch, tokens))
    next_token.copy_(torch.cat([order[1:], torch.tensor([-1])]).expand(batch, tokens))
    next_sibling.fill_(-1)
    visible = order.unsqueeze(1) >= order
    tree_mask.copy_(visible.reshape(-1).repeat(batch).to(tree_mask.dtype))


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """Accept draft tokens for as long as they are what the target itself predicts."""
    wanted = target_predict.reshape(-1)
    for i in range(candidates.shape[0]):
        node = 0
        path = [0]
        while len(path) < accept_index.shape[1]:
            token = wanted[retrive_index[i, node]]
            node = int(retrive_next_token[i, node])
            while node != -1 and candidates[i, node] != token:
                node = int(retrive_next_sibling[i, node])
            if node == -1:
                break
            path.append(node)
        slots = retrive_index[i, path].long()
        accept_index[i, : len(path)] = slots.to(accept_index.dtype)
        accept_token_num[i] = len(path) - 1
        predicts[slots] = wanted[slots].to(predicts.dtype)


def fill_bonus_tokens_cpu(tokens, lengths, bonus_tokens, stride):
    """The last accepted token of each request; `lengths` count it."""
    last = lengths.long().reshape(-1, 1) - 1
    bonus_tokens.copy_(tokens.reshape(-1, stride).gather(1, last).reshape(-1))


def fill_accept_out_cache_loc_cpu(accept_index, slots, accepted_slots):
    """Gather the slots of accepted tokens to the front; -1 marks what was not accepted."""
    kept = slots[accept_index[accept_index >= 0].long()]
    accepted_slots[: kept.numel()] = kept
