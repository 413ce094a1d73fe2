"""Finished segments whose objects are missing from the store, as the tasks need them (H11, H25).

A segment becomes suspected by a trim that did not find its objects, by a reader that did not get
them, or by the periodic check of all segments that the local log still holds: only while the log
holds its records can a lost segment be copied again. A suspicion decides nothing. The store is
asked each time, and a store that is away or is another one proves nothing.

HoleRecords is the only writer of a partition's list of holes (H15). Each change reads the list
behind a barrier first, one change after the other, so that none removes another's hole. Only the
partition's leader writes.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import Clock, jittered_ms
from rlm.plans.coverage import with_holes, without_copied
from rlm.remote_log.history import Losses
from rlm.remote_log.ports import Settings
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.evidence import StoreEvidence, store_of
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord

log = structlog.get_logger()
_MOST_PER_PARTITION = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Segments whose objects are proven missing, and those that are whole: all objects exist, and
    no reader found them damaged. Segments whose store cannot be asked, or is another one, are in
    neither.
    """

    gone: frozenset[Uuid]
    whole: frozenset[Uuid]


class LostSegments:
    """`losses` are those of readers; `check_interval_ms` is copy.presence.check.interval.ms."""

    def __init__(
        self,
        *,
        evidence: StoreEvidence,
        losses: Losses,
        clock: Clock,
        check_interval_ms: Callable[[], int],
    ) -> None:
        self._evidence = evidence
        self._losses = losses
        self._clock = clock
        self._check_interval_ms = check_interval_ms
        self._suspects: dict[PartitionKey, set[Uuid]] = {}
        self._next_check_ms: dict[PartitionKey, int] = {}

    def suspect(self, key: PartitionKey, segment_ids: Iterable[Uuid]) -> None:
        """These were not found in the store; it will be asked again."""
        known = self._suspects.setdefault(key, set())
        for segment_id in segment_ids:
            if len(known) < _MOST_PER_PARTITION:
                known.add(segment_id)

    def report(
        self,
        key: PartitionKey,
        segment_id: Uuid,
        error: NotFound | Corrupt,
        listed: Collection[Uuid],
    ) -> None:
        """Readers would not get this segment. `listed`: segments that the ledger has."""
        self._losses.note(key, segment_id, error, listed)

    def found(
        self, key: PartitionKey, segment_ids: Iterable[Uuid], *, is_read: bool = False
    ) -> None:
        """These exist in full size. Damage is disproved only where every byte was read."""
        lost, damaged = self._losses.segments(key), self._losses.damaged(key)
        for segment_id in segment_ids:
            if segment_id in lost and (is_read or segment_id not in damaged):
                self._losses.forget(key, segment_id)

    def suspects(self, snapshot: PartitionSnapshot) -> tuple[RemoteLogSegmentMetadata, ...]:
        """The suspected segments among the finished, undisputed ones of the leader's lineage."""
        ids = self._suspects.get(snapshot.key, set()) | self._losses.segments(snapshot.key)
        return tuple(one for one in _usable(snapshot) if one.segment_id.id in ids) if ids else ()

    def is_due(self, snapshot: PartitionSnapshot) -> bool:
        """Whether the store should be asked now."""
        return self._is_check_due(snapshot.key) or bool(self.suspects(snapshot))

    async def gone(self, snapshot: PartitionSnapshot) -> frozenset[Uuid]:
        """Segments whose objects are proven missing, of those that are suspected or due for a
        check, and those that are damaged; none of them counts as a copy.

        A segment that a store cannot answer about now is not in the result.
        """
        wanted = self.suspects(snapshot)
        if self._is_check_due(snapshot.key):
            start = snapshot.watermarks.log_start_offset
            wanted = tuple(
                one for one in _usable(snapshot) if one in wanted or one.next_offset > start
            )
            self._put_off_check(snapshot.key)
        return (await self.ask(snapshot, wanted)).gone | self.damaged(snapshot).keys()

    def damaged(self, snapshot: PartitionSnapshot) -> Mapping[Uuid, str]:
        """Segments that readers found damaged, and how. No trim relies on them, and they are copied
        again. They are not deleted, since a repair of the store can restore them.
        """
        return self._losses.damaged(snapshot.key)

    async def ask(
        self, snapshot: PartitionSnapshot, segments: Collection[RemoteLogSegmentMetadata]
    ) -> Found:
        """What the stores currently show of the segments."""
        by_store: dict[Uuid, list[RemoteLogSegmentMetadata]] = {}
        for one in segments:
            with suppress(Invalid):  # metadata that names no store: there is none to ask
                by_store.setdefault(store_of(one), []).append(one)
        gone: set[Uuid] = set()
        whole: set[Uuid] = set()
        for store_id, asked in by_store.items():
            try:
                missing = await self._evidence.missing(asked)
            except RemoteStorageError as error:
                log.warning("segments_not_checked", store_id=str(store_id), error=str(error))
                continue
            gone.update(missing)
            whole.update(one.segment_id.id for one in asked if one.segment_id.id not in missing)
            self._note(snapshot.key, asked, missing)
        return Found(gone=frozenset(gone), whole=frozenset(whole - self.damaged(snapshot).keys()))

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._suspects.pop(key, None)
        self._next_check_ms.pop(key, None)

    def _note(
        self,
        key: PartitionKey,
        asked: Iterable[RemoteLogSegmentMetadata],
        missing: Collection[Uuid],
    ) -> None:
        """Segments that were found again are no longer suspected; missing ones now are."""
        known = self._suspects.get(key, set())
        for segment_id in missing:
            if segment_id not in known:
                log.error("segment_objects_missing", partition=str(key), segment=str(segment_id))
        self.suspect(key, missing)
        for one in asked:
            if one.segment_id.id not in missing:
                known.discard(one.segment_id.id)

    def _is_check_due(self, key: PartitionKey) -> bool:
        if key not in self._next_check_ms:
            self._put_off_check(key)
        return self._clock.monotonic_ms() >= self._next_check_ms[key]

    def _put_off_check(self, key: PartitionKey) -> None:
        """Spread in time, so that a service does not check all its partitions at once."""
        wait_ms = int(jittered_ms(self._check_interval_ms()))
        self._next_check_ms[key] = self._clock.monotonic_ms() + wait_ms


def _usable(snapshot: PartitionSnapshot) -> tuple[RemoteLogSegmentMetadata, ...]:
    found = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
    return tuple(one.metadata for one in found if not one.disputed)


class HoleRecords:
    """The holes of the partitions that this service leads."""

    def __init__(self, *, settings: Settings, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._barrier_deadline_ms = barrier_deadline_ms
        self._turn = asyncio.Lock()

    async def add(self, key: PartitionKey, holes: Iterable[Hole], leader_epoch: int) -> None:
        """Returns once they are recorded. Fenced: led elsewhere by now. Invalid: too many."""
        new = tuple(holes)
        await self._change(key, lambda known: with_holes(known, new), leader_epoch)

    async def fill(
        self, key: PartitionKey, start: int, next_offset: int, leader_epoch: int
    ) -> None:
        """Call this before [start, next_offset) is copied or adopted, and where a whole copy of it
        is found: it is there after all, and its copy must not count as an accepted loss. Errors as
        `add`.
        """
        known = self._settings.view.holes(key)
        if without_copied(known, start, next_offset) != known:
            await self._change(
                key, lambda holes: without_copied(holes, start, next_offset), leader_epoch
            )

    async def _change(
        self,
        key: PartitionKey,
        change: Callable[[tuple[Hole, ...]], tuple[Hole, ...]],
        leader_epoch: int,
    ) -> None:
        async with self._turn:
            await self._settings.barrier(self._barrier_deadline_ms)
            known = self._settings.view.holes(key)
            wanted = change(known)
            if wanted == known:
                return
            await self._settings.publish(HolesRecord(partition=key, holes=wanted), leader_epoch)
        log.warning("holes_recorded", partition=str(key), holes=len(wanted))
