"""What a child gets from its supervisor: one line on standard input, which stays open as long as
the supervisor lives. A child dies with its supervisor, so that a service that was killed can start
again at once: nothing of it holds ports and locks.
"""

import asyncio
import ctypes
import os
import signal
import sys

_STANDARD_INPUT = 0
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def first_line() -> bytes:
    """The line, without reading beyond it; EOFError: there is none."""
    line = bytearray()
    while not line.endswith(b"\n"):
        one = os.read(_STANDARD_INPUT, 1)
        if not one:
            raise EOFError("standard input ended before its first line")
        line += one
    return bytes(line)


def die_with_supervisor(loop: asyncio.AbstractEventLoop) -> None:
    """SIGKILL when the supervisor is gone: by the kernel on Linux, and when input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def read_on() -> None:
        if not os.read(_STANDARD_INPUT, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    loop.add_reader(_STANDARD_INPUT, read_on)
