"""Has what a bounded retention threatens held open, and copied before all else (H14).

While somebody bounds the retention of a topic in mode tier, or we ourselves do because a disk of
another broker, or another disk of ours, is nearly full (H18), the broker deletes closed segments,
copied or not. So the files of its uncopied segments are opened at once (rlm.tasks.segment_holds),
by the last snapshots first: they may know what the broker has just begun to delete. A hold ends
with the copy, with the leader epoch, or 15 minutes after the bound was last seen, if the broker has
the segment still. This is a last resort: a segment that is deleted before the bound is seen, or
before the last stable offset has passed it, is gone; and the active segment, which the broker may
close and delete in one step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.broker.answers import TopicConfigValue
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.copy import refuse_topic
from rlm.plans.holds import oldest
from rlm.plans.retention_contests import CONTEST_MS
from rlm.remote_log.snapshots import RETENTION_CONFIGS, PartitionSnapshot, bounded_retention
from rlm.tasks.segment_holds import SegmentHolds

log = structlog.get_logger()
_SNAPSHOTS_AT_ONCE = 16


class ConfigSource(Protocol):
    """Our own broker (rlm.broker.OwnBroker)."""

    def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Awaitable[Mapping[str, TopicConfigValue]]: ...


class KnownSnapshots(Protocol):
    """See rlm.remote_log.snapshot_cache.SnapshotCache."""

    def of(self, led: LedPartition) -> PartitionSnapshot | None: ...

    def take(self, led: LedPartition) -> Awaitable[PartitionSnapshot]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """Of a topic's retention, and when it was last seen (monotonic)."""

    bounds: str
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredPartition:
    """A partition of a topic in mode tier that we lead; `given_back`: see rlm.topics.giveback."""

    led: LedPartition
    given_back: bool = False


class BoundedRetentionWatch:
    """`run` checks until cancelled. `tiered`: what we lead; `has_space`: whether the disk of a
    partition directory is not nearly full; `gives_way`: of this partition nothing may be held,
    because its disk is nearly full (H18); `uncopied`: what a snapshot shows to be copied, however
    long it may wait; `request` asks for a copy task.
    """

    def __init__(
        self,
        *,
        holds: SegmentHolds,
        broker: ConfigSource,
        snapshots: KnownSnapshots,
        tiered: Callable[[], Collection[TieredPartition]],
        has_space: Callable[[str], bool],
        gives_way: Callable[[PartitionSnapshot], bool],
        uncopied: Callable[[PartitionSnapshot], Sequence[LocalSegment]],
        request: Callable[[LedPartition], None],
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._holds = holds
        self._broker = broker
        self._snapshots = snapshots
        self._tiered = tiered
        self._has_space = has_space
        self._gives_way = gives_way
        self._uncopied = uncopied
        self._request = request
        self._clock = clock
        self._interval_ms = interval_ms
        self._bounded: dict[str, _Bound] = {}
        self._without_room = 0

    def counts(self) -> tuple[int, int]:
        """Segments that are held, and those for which there is no room."""
        return self._holds.count, self._without_room

    async def run(self) -> None:
        """Check at every interval; a broker that does not answer is asked again."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms)

    async def check(self) -> None:
        """See whether the retention of any of the topics is bounded, and hold what it threatens."""
        rows = [
            one.led
            for one in self._tiered()
            if self._may_hold(one) and not any(map(self._gives_way, self._known([one.led])))
        ]
        for key in set(self._holds.keys) - {row.key for row in rows}:
            self._holds.forget(key)
        before, self._bounded = self._bounded, {}
        topics = {row.topic_id_partition.topic for row in rows}
        await asyncio.gather(*(self._ask(topic, before) for topic in topics))
        for snapshot in self._known(rows):
            if snapshot.key in self._holds.keys:
                await self._drop_safe(snapshot)
        await self._hold(self._known(rows))
        new = self._bounded.keys() - before.keys()
        if new:
            await self._take(row for row in rows if row.topic_id_partition.topic in new)
            await self._hold(self._known(rows))
        await self._holds.close_dropped()

    def _may_hold(self, one: TieredPartition) -> bool:
        """A retention that is given back must free space on a disk that is nearly full, but it acts
        on the topic's partitions everywhere (H18).
        """
        known = self._snapshots.of(one.led) if one.given_back else None
        return not one.given_back or (known is not None and self._has_space(known.log.directory))

    def _known(self, rows: Iterable[LedPartition]) -> list[PartitionSnapshot]:
        return [found for row in rows if (found := self._snapshots.of(row)) is not None]

    async def _ask(self, topic: str, before: Mapping[str, _Bound]) -> None:
        """What is not known stays as it was. A bound that is gone may come back at any moment."""
        known, now_ms = before.get(topic), self._clock.monotonic_ms()
        try:
            bounds = bounded_retention(await self._broker.topic_config(topic, RETENTION_CONFIGS))
        except RemoteStorageError:
            bounds = known.bounds if known is not None else None
        if bounds is not None:
            self._bounded[topic] = _Bound(bounds=bounds, seen_at_ms=now_ms)
        elif known is not None and now_ms - known.seen_at_ms <= CONTEST_MS:
            self._bounded[topic] = known

    async def _take(self, rows: Iterable[LedPartition]) -> None:
        """Have fresh snapshots of the partitions that can be read now."""
        at_once = asyncio.Semaphore(_SNAPSHOTS_AT_ONCE)

        async def take(row: LedPartition) -> None:
            async with at_once:
                await self._fresh(row)

        await asyncio.gather(*(take(row) for row in rows))

    async def _fresh(self, row: LedPartition) -> PartitionSnapshot | None:
        """A snapshot that is taken now; None if the partition cannot be read."""
        try:
            return await self._snapshots.take(row)
        except RemoteStorageError as error:
            name = str(row.topic_id_partition)
            log.warning("bounded_partition_not_read", partition=name, error=str(error))
            return None

    async def _hold(self, snapshots: Iterable[PartitionSnapshot]) -> None:
        """Of the snapshots of bounded topics, the oldest segments of all first."""
        wanted: dict[PartitionKey, list[LocalSegment]] = {}
        bounded = {one.key: one for one in snapshots if self._bound_of(one) is not None}
        for key, snapshot in bounded.items():
            held = self._holds.bases(key)
            uncopied = self._uncopied(snapshot)
            wanted[key] = [one for one in uncopied if one.base_offset not in held]
        chosen = oldest(wanted, self._holds.room)
        for key, bases in chosen.items():
            await self._hold_of(bounded[key], bases)
        rest = sum(map(len, wanted.values())) - sum(map(len, chosen.values()))
        if rest > self._without_room:
            log.error("no_room_to_hold_segments", held=self._holds.count, without_room=rest)
        self._without_room = rest

    async def _hold_of(self, snapshot: PartitionSnapshot, bases: frozenset[int]) -> None:
        opened, bound = await self._holds.hold(snapshot, bases), self._bound_of(snapshot)
        log.warning(
            "segments_held",
            partition=str(snapshot.led.topic_id_partition),
            segments=opened,
            gone=len(bases) - opened,
            bounds=bound.bounds if bound else None,
        )
        if opened:
            self._request(snapshot.led)

    def _bound_of(self, snapshot: PartitionSnapshot) -> _Bound | None:
        return self._bounded.get(snapshot.led.topic_id_partition.topic)

    async def _drop_safe(self, snapshot: PartitionSnapshot) -> None:
        """What is copied; without a bound, what the broker still has too, as is looked up now."""
        is_bounded = self._bound_of(snapshot) is not None
        latest = snapshot if is_bounded else await self._fresh(snapshot.led)
        if latest is None or latest.frozen is not None:
            return
        if refuse_topic(latest.topic.state) is not None:
            return  # then nothing counts as to be copied
        kept = {one.base_offset for one in self._uncopied(latest)}
        if not is_bounded:
            kept &= {one.base_offset for one in self._holds.missing(latest)}
        self._holds.drop(latest.key, self._holds.bases(latest.key) - kept)
