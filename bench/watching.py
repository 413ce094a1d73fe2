"""When something appears, such as a file in a folder: the first byte of a copy, a new segment."""

import math
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from rlm_sandbox.sandbox import Sandbox

WATCH_S = 0.01


class Watch(ABC):
    """Looks in a thread, each `every_s` seconds while it is entered, until it has seen all."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @abstractmethod
    def see(self) -> bool:
        """See what is there now; whether there is nothing more to see."""

    def _watch(self) -> None:
        while not self._end.wait(self._every_s) and not self.see():
            pass


class FilesSeen(Watch):
    """`at_s`: when each file that matches the pattern was seen first, in seconds since the epoch.

    It looks no more once it has seen `most` files.
    """

    def __init__(
        self, folder: Path, pattern: str, *, every_s: float = WATCH_S, most: int | None = None
    ) -> None:
        super().__init__(every_s)
        self._folder, self._pattern, self._most = folder, pattern, most
        self.at_s: dict[Path, float] = {}

    @property
    def first_s(self) -> float:
        """When the first file was seen; infinite before that."""
        return min(tuple(self.at_s.values()), default=math.inf)

    def see(self) -> bool:
        """See `Watch`."""
        for path in self._folder.glob(self._pattern):
            self.at_s.setdefault(path, time.time())
            if len(self.at_s) == self._most:
                return True
        return False


def copies_seen(
    sandbox: Sandbox, topic: str, *, every_s: float = WATCH_S, most: int | None = None
) -> FilesSeen:
    """Watches the files of a topic in the directory that is the store. A file is seen under its
    temporary name, before its first byte is written, and again under its own.
    """
    return FilesSeen(sandbox.layout.store, f"*/{topic}-*/*/*", every_s=every_s, most=most)
