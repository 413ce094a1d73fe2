"""Ctrl-C for tests, also in a run that was started in the background."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_heeded() -> Iterator[None]:
    """Inside the block this process, and those it starts, do not ignore SIGINT.

    A shell without job control (`nohup make test &`) makes what it starts in the background ignore
    SIGINT, children inherit that, and Python keeps to it, as every program should. Tests of Ctrl-C
    must not depend on it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
