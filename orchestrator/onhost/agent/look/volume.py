"""Tells whether two hosts, or two mount points of one, see the same directory."""

from __future__ import annotations

import os
from typing import Optional

# Their servers number files for all clients alike, so the mount's source and an inode name one.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NETWORK_FUSE = ("fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "fuse.juicefs")


def name_place(folder: str) -> str:
    """What is equal on two hosts where they see one directory, as far as its mount tells.

    A directory on a disk of the machine's own is one of this boot of this machine. Two mounts of
    parts of one export count as two: this is for a note, locks decide.
    """
    seen = os.stat(folder)
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            source = find_source(file.read(), seen.st_dev)
        with open("/proc/sys/kernel/random/boot_id") as file_:
            boot_id = file_.read().strip()
    except OSError:
        source, boot_id = None, "%s" % os.uname().nodename
    volume = source if source is not None else "%s %d" % (boot_id, seen.st_dev)
    return "%s %d" % (volume, seen.st_ino)


def find_source(mounts: bytes, device: int) -> Optional[str]:
    """What a network file system of this device is mounted from; `None` for any other."""
    mark = "%d:%d" % (os.major(device), os.minor(device))
    for line in mounts.decode("utf-8", "surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        words = rest.split(" ")
        if fields.split(" ")[2:3] == [mark] and words[0] in _NETWORK + _NETWORK_FUSE:
            return "%s %s" % (words[0], words[1])
    return None
