"""What a child and its supervisor say to each other: a line of settings, and that the child serves.

The line comes on standard input, which stays open as long as the supervisor lives. A child dies
with its supervisor, so that a service that was killed can start again at once: nothing of it holds
ports and locks.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

READY = b"ready\n"
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The line of a core: how many workers there are, and how often a core has ended by itself
    lately.
    """

    workers: int
    recent_ends: int

    def line(self) -> bytes:
        """For a core's standard input."""
        return json_line(asdict(self))

    @classmethod
    def of(cls, line: bytes) -> "CoreSettings":
        """What a later version has added is left out."""
        return cls(**known_fields(cls, json.loads(line)))


def json_line(content: Mapping[str, Any]) -> bytes:
    """For a child's standard input."""
    return json.dumps(content).encode() + b"\n"


def known_fields(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """What of it is a field of the dataclass."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def first_line() -> bytes:
    """The line, without reading beyond it; EOFError: there is none."""
    line = bytearray()
    while not line.endswith(b"\n"):
        one = os.read(_STANDARD_INPUT, 1)
        if not one:
            raise EOFError("standard input ended before its first line")
        line += one
    return bytes(line)


def say_ready() -> None:
    """This child serves. What else a child writes to standard output is ignored."""
    os.write(_STANDARD_OUTPUT, READY)


@contextmanager
def held_hang_ups() -> Iterator[None]:
    """SIGHUP waits until `on_hang_up`: before there is a handler it would end the process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_replacement() -> None:
    """SIGUSR2 asks a supervisor to replace its processes; any other process would end by it."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def on_hang_up(act: Callable[[], None]) -> None:
    """SIGHUP calls `act` in the event loop from now on; one that was held does so at once."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))


def die_with_supervisor(loop: asyncio.AbstractEventLoop) -> None:
    """SIGKILL when the supervisor is gone: by the kernel on Linux, and when input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def read_on() -> None:
        if not os.read(_STANDARD_INPUT, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    loop.add_reader(_STANDARD_INPUT, read_on)
