"""Moves a run of bytes between two sockets within the kernel: `splice` through a pipe (Linux).

A transport of asyncio owns its socket, so while a run is moved, its reading is paused, its writer
is lent, and duplicates of both descriptors are watched. A pipe is taken when a run begins and given
back when it ends, so an idle connection has none. Where there is no `splice`, `Pipes.take` has no
pipe, and the bytes go through the read buffer as all others do. This module must not know Kafka.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass

PIPE_BYTES = 262_144
LEAST_RUN_BYTES = 65_536
"""A shorter run costs less through the read buffer."""
_MOST_PIPES = 256  # of this size are as much as a user's pipes may hold (pipe-user-pages-soft)
_MOST_MOVES = 8  # in one callback, so that other connections have their turn
_FLAGS = getattr(os, "SPLICE_F_NONBLOCK", 0) | getattr(os, "SPLICE_F_MOVE", 0)
_IS_AVAILABLE = hasattr(os, "splice")


@dataclass(slots=True)
class Pipe:
    """Both ends, and how many bytes are in it."""

    read_fd: int
    write_fd: int
    held_bytes: int = 0

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self.write_fd)


class Pipes:
    """The pipes of all connections; those that are not used stay open for the next run."""

    def __init__(self, most: int = _MOST_PIPES) -> None:
        self._most = most if _IS_AVAILABLE else 0
        self._free: list[Pipe] = []
        self.taken = 0

    def take(self) -> Pipe | None:
        """An empty pipe; None where there is no `splice`, or too many pipes are taken."""
        if self.taken >= self._most:
            return None
        pipe = self._free.pop() if self._free else _new_pipe()
        self.taken += 0 if pipe is None else 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """A pipe with bytes in it is closed: they must never reach another connection."""
        self.taken -= 1
        if pipe.held_bytes:
            pipe.close()
        else:
            self._free.append(pipe)

    def close(self) -> None:
        """Close what is free now."""
        while self._free:
            self._free.pop().close()


def _new_pipe() -> Pipe | None:
    try:
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # too many open files
        return None
    pipe = Pipe(read_fd=read_fd, write_fd=write_fd)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    if fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ) < LEAST_RUN_BYTES:  # the user has too many
        pipe.close()
        return None
    return pipe


class Splicing:
    """One run from `source_fd` to `target_fd`; both descriptors are closed at its end.

    `moved` gets the number of bytes that the target has taken, each time some were. `ended` is
    called once, unless it is stopped: with None if the run is complete. Otherwise the source has
    ended, one of them has failed, or the kernel does not splice them; then it gets the bytes that
    were read of the source and that the target has not taken.
    """

    def __init__(
        self,
        pipes: Pipes,
        pipe: Pipe,
        fds: tuple[int, int],
        size_bytes: int,
        moved: Callable[[int], None],
        ended: Callable[[bytes | None], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipes = pipes
        self._pipe = pipe
        self._source_fd, self._target_fd = fds
        self._unread_bytes = size_bytes
        self._moved = moved
        self._ended = ended
        self._is_over = False
        self._watched: int | None = None

    @property
    def waits_for_source(self) -> bool:
        """Whether all that the source has sent was taken by the target."""
        return self._watched == self._source_fd

    def start(self) -> None:
        """Begin; the source may have bytes already."""
        self._move()

    def stop(self) -> None:
        """End without a word; bytes in the pipe are lost with the connection."""
        if self._is_over:
            return
        self._is_over = True
        self._watch(None)
        os.close(self._source_fd)
        os.close(self._target_fd)
        self._pipes.give_back(self._pipe)

    def _source_ready(self) -> None:
        """Only reading goes over urgent data, of which a source says that it is ready."""
        before = self._unread_bytes
        self._move()
        if self._unread_bytes == before and self._watched == self._source_fd:
            self._end(is_complete=False)

    def _move(self) -> None:
        try:
            for _ in range(_MOST_MOVES):
                if not self._pipe.held_bytes and not self._fill():
                    return
                if not self._drain():
                    return
                if not self._unread_bytes:
                    self._end(is_complete=True)
                    return
        except OSError:
            self._end(is_complete=False)
            return
        self._watch(self._source_fd)

    def _fill(self) -> bool:
        """Whether the pipe has bytes now."""
        size_bytes = min(self._unread_bytes, PIPE_BYTES)
        try:
            got_bytes = os.splice(self._source_fd, self._pipe.write_fd, size_bytes, flags=_FLAGS)
        except BlockingIOError:
            self._watch(self._source_fd)
            return False
        if got_bytes == 0:
            self._end(is_complete=False)
            return False
        self._pipe.held_bytes = got_bytes
        self._unread_bytes -= got_bytes
        return True

    def _drain(self) -> bool:
        """Whether the pipe is empty now."""
        pipe = self._pipe
        while pipe.held_bytes and not self._is_over:
            try:
                taken = os.splice(pipe.read_fd, self._target_fd, pipe.held_bytes, flags=_FLAGS)
            except BlockingIOError:
                self._watch(self._target_fd)
                return False
            pipe.held_bytes -= taken
            self._moved(taken)
        return not self._is_over

    def _watch(self, fd: int | None) -> None:
        """Wait until this descriptor is ready, and no longer for another one."""
        if fd == self._watched:
            return
        if self._watched == self._source_fd:
            self._loop.remove_reader(self._source_fd)
        elif self._watched == self._target_fd:
            self._loop.remove_writer(self._target_fd)
        self._watched = fd
        if fd == self._source_fd:
            self._loop.add_reader(fd, self._source_ready)
        elif fd == self._target_fd:
            self._loop.add_writer(fd, self._move)

    def _end(self, *, is_complete: bool) -> None:
        if self._is_over:
            return
        rest = None if is_complete else self._read_rest()
        self.stop()
        self._ended(rest)

    def _read_rest(self) -> bytes:
        """What is in the pipe."""
        parts = []
        while self._pipe.held_bytes:
            parts.append(os.read(self._pipe.read_fd, self._pipe.held_bytes))
            self._pipe.held_bytes -= len(parts[-1])
        return b"".join(parts)
