"""Finds at intervals which stores hold the ledger's segments, how much, and of which topics.

With this, a service reports that its configuration no longer names a store that segments need, and
a store's lifecycle rules are judged by the topics that it really holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.clock import Clock
from rlmm.ledger import PartitionLedger, SegmentEntry

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_STORE_ID = slice(2, 18)
"""Where the envelope of custom metadata has the store uuid (kip405.segments)."""
_YIELD_EVERY = 64
_FIRST_MS = 500


class Ledger(Protocol):
    """The manager of rlmm."""

    @property
    def is_ready(self) -> bool: ...

    def partitions(self) -> tuple[PartitionKey, ...]: ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """`segments` and `size_bytes` count FINISHED ones; `topics` are all that need the store."""

    segments: int = 0
    size_bytes: int = 0
    topics: frozenset[Uuid] = frozenset()

    def __add__(self, other: "StoreUsage") -> "StoreUsage":
        return StoreUsage(
            segments=self.segments + other.segments,
            size_bytes=self.size_bytes + other.size_bytes,
            topics=self.topics | other.topics,
        )


@dataclass(kw_only=True)
class _Known:
    """The result for one version of a partition's view."""

    version: int
    usage: Mapping[Uuid, StoreUsage] = field(default_factory=dict)


class StoresInUse:
    """`by_store` holds the last result; it is empty before the ledger was read."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.by_store: Mapping[Uuid, StoreUsage] = {}
        self._ledger = ledger
        self._clock = clock
        self._known: dict[PartitionKey, _Known] = {}

    async def run(self, interval_ms: int) -> None:
        """Run until cancelled, from when the ledger is read."""
        while True:
            is_ready = self._ledger.is_ready
            if is_ready:
                await self.refresh()
            await self._clock.sleep_ms(interval_ms if is_ready else min(interval_ms, _FIRST_MS))

    async def refresh(self) -> None:
        """Count again what changed; yields to other tasks in between."""
        total: dict[Uuid, StoreUsage] = {}
        keys = self._ledger.partitions()
        for number, key in enumerate(keys):
            for store_id, usage in self._of(key).items():
                total[store_id] = total.get(store_id, StoreUsage()) + usage
            if number % _YIELD_EVERY == 0:
                await self._clock.sleep_ms(0)
        self._known = {key: self._known[key] for key in keys if key in self._known}
        self.by_store = total

    def _of(self, key: PartitionKey) -> Mapping[Uuid, StoreUsage]:
        view = self._ledger.ledger(key)
        known = self._known.get(key)
        if known is None or known.version != view.version:
            usage = _usage(key.topic_id, view)
            known = self._known[key] = _Known(version=view.version, usage=usage)
        return known.usage


def _usage(topic_id: Uuid, view: PartitionLedger) -> dict[Uuid, StoreUsage]:
    counted: dict[bytes, tuple[int, int]] = {}
    for entry in view.entries.values():
        custom = entry.metadata.custom_metadata
        if custom is None or entry.state is _DELETED:
            continue
        segments, size_bytes = counted.get(custom[_STORE_ID], (0, 0))
        counted[custom[_STORE_ID]] = (
            segments + (entry.state is _FINISHED),
            size_bytes + _finished_bytes(entry),
        )
    return {
        Uuid(raw): StoreUsage(segments=many, size_bytes=size, topics=frozenset((topic_id,)))
        for raw, (many, size) in counted.items()
    }


def _finished_bytes(entry: SegmentEntry) -> int:
    return entry.metadata.segment_size_bytes if entry.state is _FINISHED else 0
