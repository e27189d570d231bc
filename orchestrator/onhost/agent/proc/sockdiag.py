"""What only the kernel's socket monitor tells of listening sockets: sock_diag(7)."""

from __future__ import annotations

import socket
import struct
from typing import Dict, Iterator, Tuple

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_LISTENING = 1 << 10  # TCP_LISTEN
_SKV6ONLY = 11  # INET_DIAG_SKV6ONLY
_HEAD = struct.Struct("=IHHII")  # of a message: length, type, flags, number, port
_ATTRIBUTE = struct.Struct("=HH")
# In struct inet_diag_msg of include/uapi/linux/inet_diag.h.
_INODE_AT, _ATTRIBUTES_AT = 68, 72
_ANSWER_S = 1.0
_CHUNK_BYTES = 1 << 16


def read_v6_only() -> Dict[int, bool]:
    """Of each socket of IPv6 that listens in our network, by inode, whether it takes no IPv4.

    Empty where the kernel does not say: the monitor is a module that may be missing.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as channel:
            channel.settimeout(_ANSWER_S)
            asked = struct.pack("=BBBBI", socket.AF_INET6, socket.IPPROTO_TCP, 0, 0, _LISTENING)
            asked += bytes(48)  # any address
            channel.send(
                _HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + asked
            )
            return dict(_read_all(channel))
    except (OSError, struct.error):
        return {}


def _read_all(channel: socket.socket) -> Iterator[Tuple[int, bool]]:
    while True:
        data, at = channel.recv(_CHUNK_BYTES), 0
        while at < len(data):
            length, kind, *_ = _HEAD.unpack_from(data, at)
            if kind in (_ERROR, _DONE) or length < _HEAD.size:
                return
            yield from _parse(data[at + _HEAD.size : at + length])
            at += _align(length)


def _parse(body: bytes) -> Iterator[Tuple[int, bool]]:
    (inode,) = struct.unpack_from("=I", body, _INODE_AT)
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size < len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if kind == _SKV6ONLY:
            yield inode, body[at + _ATTRIBUTE.size] != 0
        at += max(_align(length), _ATTRIBUTE.size)


def _align(length: int) -> int:
    return (length + 3) & ~3
