"""When each task of each partition last ended well.

A partition whose runs fail is not noticed by what they did before. Must not know what a run does.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType

from kip405.ids import PartitionKey
from rlm.clock import Clock


class GoodRun(enum.Enum):
    """The tasks of which that is known, by their names in metrics."""

    COPY = "copy"
    TRIM = "trim"
    EXPIRY = "expiry"


class GoodRuns:
    """A run is good if it ended without an error, whether there was something to do or not; a copy
    run also whenever it has copied a segment.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended_ms: dict[GoodRun, dict[PartitionKey, int]] = {task: {} for task in GoodRun}

    def note(self, task: GoodRun, key: PartitionKey) -> None:
        """A run for the partition has ended well now, or copied a segment."""
        self._ended_ms[task][key] = self._clock.monotonic_ms()

    def forget(self, task: GoodRun, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._ended_ms[task].pop(key, None)

    def ended_ms(self, task: GoodRun) -> Mapping[PartitionKey, int]:
        """When (monotonic) the last good run of each partition ended; of others there was none."""
        return MappingProxyType(self._ended_ms[task])
