"""Following files as they grow: raw bytes by offset, under credit, with bounded memory."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Any, Dict, List, Mapping, Optional

from ..refusal import Refusal

FRAME = 64 << 10
POLL_S = 0.05
_TAIL_LIMIT = 64 << 10
_SEARCH_LIMIT = 1 << 20


def read_tail(path: str, lines: int, start: int = 0, without: str = "") -> bytes:
    """The last lines of a file from `start` on, at most 64 KiB; raises `Refusal` (`missing`).

    Those that begin with `without` do not count: in a file that is full of them the others are
    looked for in its last MiB.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            size = file.seek(0, os.SEEK_END)
            # A file that is shorter was cut meanwhile: all of it is new.
            limit = _SEARCH_LIMIT if without else _TAIL_LIMIT
            begin = start if start <= size else 0
            file.seek(max(begin, size - limit))
            data = file.read(limit)
    except OSError as error:
        why = error.strerror or "it is not a file"  # Python's own word for what cannot seek
        raise Refusal("missing", "cannot read `%s`: %s" % (path, why)) from None
    # Split at newlines only: each state of a progress bar would count as a line otherwise.
    end = b"\n" if data.endswith(b"\n") else b""
    found = data[: len(data) - len(end)].split(b"\n") if lines > 0 and data else []
    if without:
        if size - limit > begin:
            found = found[1:]  # nobody can tell what the rest of a line began with
        found = [line for line in found if not line.startswith(without.encode())]
    kept = found[-lines:]
    return (b"\n".join(kept) + (end if kept else b""))[-_TAIL_LIMIT:]


def _open_at_once(path: str, flags: int) -> int:
    """A pipe in a log's place would hold us until somebody writes; so it refuses to seek."""
    return os.open(path, flags | os.O_NONBLOCK)


class Follow:
    """One followed file. Its descriptor stays open, so a renamed file is still read to its end.

    Only the follower's thread touches the file; the others leave `credit` and `asked` behind.
    """

    def __init__(self, stream: int, path: str, offset: int, credit: int) -> None:
        self.stream = stream
        self.path = path
        self.start = offset
        self.offset = offset
        self.credit = credit
        self.asked: Optional[str] = None
        self._fd: Optional[int] = None
        self._digest = hashlib.sha256()
        self._end_at: Optional[int] = None
        self._end_why = ""

    def read(self, credit: int) -> bytes:
        """The next bytes that the credit allows; empty at the end of the file."""
        if self._fd is None and not self._open():
            return b""
        assert self._fd is not None
        limit = min(FRAME, credit)
        if self._end_at is not None:
            limit = min(limit, self._end_at - self.offset)
        if limit <= 0:
            return b""
        data = os.pread(self._fd, limit, self.offset)
        self._digest.update(data)
        self.offset += len(data)
        return data

    def find_end(self) -> Optional[str]:
        """Why nothing will follow what was read so far, or `None` where something may."""
        if self.asked == "unfollowed":
            return self.asked
        if self._fd is None:
            return self.asked
        if os.fstat(self._fd).st_size < self.offset:
            return "truncated"
        if self._end_at is None:
            why = self.asked or ("rotated" if self._is_replaced() else None)
            if why is None:
                return None
            # Everything that was written up to now still belongs to the stream.
            self._end_at, self._end_why = os.fstat(self._fd).st_size, why
        return self._end_why if self.offset >= self._end_at else None

    def close(self, why: str) -> Dict[str, Any]:
        """Give the descriptor back; returns the header of the `end` event."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        return {
            "event": "end",
            "stream": self.stream,
            "offset": self.offset,
            "start": self.start,
            "sha256": self._digest.hexdigest(),
            "why": why,
        }

    def _is_replaced(self) -> bool:
        assert self._fd is not None
        opened = os.fstat(self._fd)
        try:
            named = os.stat(self.path)
        except OSError:
            return False  # renamed away, its successor is not there yet
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def _open(self) -> bool:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        return True


class Follower:
    """All followed files of one agent, read by one thread that exists while there are any."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._changed = threading.Condition()
        self._follows: Dict[int, Follow] = {}
        self._running = False

    def follow(self, stream: int, path: str, offset: int, credit: int) -> None:
        """Start a stream; code `exists` for a number that is in use."""
        with self._changed:
            if stream in self._follows:
                raise Refusal("exists", "stream %d is in use" % stream)
            self._follows[stream] = Follow(stream, path, offset, credit)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="sgldbg-follow", daemon=True).start()

    def credit(self, stream: int, size: int) -> None:
        """Allow more bytes; a stream that ended meanwhile is no error."""
        with self._changed:
            if stream in self._follows:
                self._follows[stream].credit += size
                self._changed.notify()

    def unfollow(self, stream: int, drain: bool) -> None:
        """End a stream, with `drain` after all that stands in the file now."""
        with self._changed:
            if stream not in self._follows:
                raise Refusal("missing", "there is no stream %d" % stream)
            self._follows[stream].asked = "drained" if drain else "unfollowed"
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                follows = list(self._follows.values())
                if not follows:
                    self._running = False
                    return
            try:
                moved = [self._advance(follow) for follow in follows]
            except BrokenPipeError:
                self._drop_all()
                return
            if not any(moved):
                with self._changed:
                    self._changed.wait(POLL_S)

    def _advance(self, follow: Follow) -> bool:
        """Send one frame of a file or its end; whether anything was sent."""
        with self._changed:
            credit = 0 if follow.asked == "unfollowed" else follow.credit
        offset = follow.offset
        try:
            data = follow.read(credit)
            why = None if data else follow.find_end()
        except OSError as error:
            data, why = b"", "cannot be read: %s" % error.strerror
        if data:
            with self._changed:
                follow.credit -= len(data)
            self._writer.log({"event": "log", "stream": follow.stream, "offset": offset}, data)
        if why is not None:
            with self._changed:
                del self._follows[follow.stream]
            self._writer.log(follow.close(why), b"")
        return bool(data) or why is not None

    def _drop_all(self) -> None:
        """Nobody reads any more; a controller that comes back says itself where it was."""
        with self._changed:
            for follow in self._follows.values():
                follow.close("lost")
            self._follows.clear()
            self._running = False


def find_follower(context: Any) -> Follower:
    """The one follower of this agent, made at the first call."""
    # setdefault() of a dict is one step; the ops run in threads of their own.
    made: Follower = context.__dict__.setdefault("follower", Follower(context.writer))
    return made


def read_spool(folder: str, offsets: Mapping[str, int], limit: int) -> List[Dict[str, Any]]:
    """New bytes of every `*.jsonl` of a folder, at most `limit` in all: `name`, `offset`, `data`.

    The folder belongs to the server's user, so that only regular files are opened, never links.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            offset = int(offsets.get(name, 0))
            data = os.pread(fd, limit, offset) if limit > 0 else b""
        except OSError:
            data = b""  # a folder or the like that is named so
        finally:
            os.close(fd)
        if data:
            limit -= len(data)
            found.append({"name": name, "offset": offset, "data": data})
    return found
