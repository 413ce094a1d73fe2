"""SIGINT and SIGTERM as a wish to stop, while a pipeline runs; the second one ends the process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BASE_STATUS = 128


class Interrupts:
    """`stop` is set by the first signal; `status` is what the process then ends with."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._number = 0

    @property
    def status(self) -> int:
        return _BASE_STATUS + self._number

    def _came(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self.stop.set()
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """For the main thread, after Spark has started: it installs a handler of its own."""
    found = Interrupts()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, found._came)
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
