"""Slots of the key/value pool: which request owns which, and moving what they hold."""

import ctypes


def _rows(requests, starts, ends):
    """(request, start, end, part of the flat output) for each request, in order."""
    done = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        count = end - start
        yield request, start, end, slice(done, done + count)
        done += count


def assign_req_to_token_pool_cpu(requests, req_to_token, starts, ends, slots, pool_length):
    """Write each request's new `slots` into its row."""
    for request, start, end, part in _rows(requests, starts, ends):
        req_to_token[request, start:end] = slots[part].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(requests, req_to_token, starts, ends, output, pool_length):
    """Read each request's slots of positions `starts` to `ends` into one flat tensor."""
    for request, start, end, part in _rows(requests, starts, ends):
        output[part] = req_to_token[request, start:end].to(output.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    requests, req_to_token, lengths, output, pool_length, topk, steps
):
    """The slots that follow each committed sequence, enough for all draft tokens."""
    ends = lengths + topk * steps
    assign_extend_cache_locs_cpu(requests, req_to_token, lengths, ends, output, pool_length)


def build_draft_decode_metadata_cpu(req_to_token, requests, lengths, topk, steps, pool_length):
    """A row per request and branch: the committed slots, then the branch's own draft slots."""
    rows = req_to_token[requests.long()].repeat_interleave(topk, dim=0)
    for i, length in enumerate(lengths.tolist()):
        for branch in range(1, topk):
            first = length + branch * steps
            own = req_to_token[int(requests[i]), first : first + steps]
            rows[i * topk + branch, length : length + steps] = own
    return rows


def copy_all_layer_kv_cache_cpu(addresses, strides, targets, sources):
    """Copy slots in every layer's buffer, given by address; sources may overlap targets."""
    moves = list(zip(targets.tolist(), sources.tolist(), strict=True))
    for address, stride in zip(addresses.tolist(), strides.tolist(), strict=True):
        held = [ctypes.string_at(address + source * stride, stride) for _, source in moves]
        for (target, _), data in zip(moves, held, strict=True):
            ctypes.memmove(address + target * stride, data, stride)
