"""The last resort against a plugin that stands still: its process ends with every thread's stack.

A library in C or Rust may block the event loop, or wait for Python's lock (the GIL) while the loop
waits for the library. Then no deadline and no signal handler runs any more. The timer here is a
thread of faulthandler, which needs no GIL; the loop sets it again and again. Whoever started the
plugin starts it again: `spawned.py`, or the service manager of a plugin that runs on its own.

The timer counts the time of the machine's monotonic clock. That of Linux stands still while the
machine sleeps, and runs while the process alone is stopped (SIGSTOP, a debugger, a frozen
container): a process stopped for longer than the limit may end when it goes on. That is accepted. A
plugin can be ended at any time without harm, and `spawned.py` ends a silent one anyway.
"""

import asyncio
import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SETS_WITHIN_LIMIT = 12


@contextmanager
def ended_if_it_hangs(limit_ms: int) -> Iterator[None]:
    """Within the block the process ends with status 1 once the running loop has stood still for so
    long; 0 = never.
    """
    if limit_ms == 0:
        yield
        return
    loop = asyncio.get_running_loop()
    seconds = limit_ms / 1000
    timer: asyncio.TimerHandle | None = None

    def set_again() -> None:
        nonlocal timer
        faulthandler.dump_traceback_later(seconds, file=sys.stderr, exit=True)
        timer = loop.call_later(seconds / _SETS_WITHIN_LIMIT, set_again)

    set_again()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        faulthandler.cancel_dump_traceback_later()
