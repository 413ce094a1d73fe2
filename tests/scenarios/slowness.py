"""How much longer than on a machine with free cores everything takes while a test waits: limits by
the clock are for what the product does, not for what else the machine does.
"""

import os
import time
from pathlib import Path

from bench.watching import Watch
from tests.busy import busy_factor

_EVERY_S = 0.1
_USUAL_S = 0.05
"""A small file is on disk within this time, and a thread has the processor again."""


class Slowness(Watch):
    """While it is entered, it does again and again what services do too: waits for a moment, and
    writes a small file to disk. `late_s`: how much later than usual all of that was done together.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(0)
        self.late_s = 0.0
        self._file = folder / "written-again-and-again"
        self._began = time.monotonic()

    @property
    def times(self) -> float:
        """By how much a short piece of work takes longer, at least 1: as many processes wait for
        each core, or as much of the time was lost.
        """
        lasted_s = time.monotonic() - self._began
        return max(busy_factor(), lasted_s / max(lasted_s - self.late_s, _EVERY_S))

    def see(self) -> bool:
        """See `Watch`; there is always more."""
        began = time.monotonic()
        time.sleep(_EVERY_S)
        with self._file.open("wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        self.late_s += max(0.0, time.monotonic() - began - _EVERY_S - _USUAL_S)
        return False
