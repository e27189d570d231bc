"""Speculative decoding: the draft proposes, the target decides."""
