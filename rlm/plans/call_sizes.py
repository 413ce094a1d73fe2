"""How many segments one call of a store deletes: fewer while its calls are slow.

Only an answer says which segments are gone, and a plugin may not stop at once when its call is
cancelled, so a call must be short. Where it takes as long for one segment as for many, smaller
calls gain nothing; so there is a least size.
"""

from kip405.ids import Uuid

MOST_SEGMENTS = 64
_LEAST_SEGMENTS = 8
_SLOW_MS = 2_000
_FAST_MS = 1_000


class CallSizes:
    """Sizes by store, of one process; calls of several partitions may run at the same time."""

    def __init__(self) -> None:
        self._sizes: dict[Uuid, int] = {}

    def of(self, store_id: Uuid) -> int:
        """How many segments the next call may have."""
        return self._sizes.get(store_id, MOST_SEGMENTS)

    def answered(self, store_id: Uuid, segments: int, took_ms: int) -> None:
        """A call for so many segments took that long.

        It counts by its own size, so that calls that were slow together halve the size once.
        """
        if took_ms > _SLOW_MS:
            self.failed(store_id, segments)
        elif took_ms < _FAST_MS:
            grown = min(MOST_SEGMENTS, 2 * segments)
            self._sizes[store_id] = max(self.of(store_id), grown)

    def failed(self, store_id: Uuid, segments: int) -> None:
        """A call for so many segments has no answer; it may be that they were too many."""
        halved = max(_LEAST_SEGMENTS, segments // 2)
        self._sizes[store_id] = min(self.of(store_id), halved)
