"""Imports the segments of one partition in order, each one whole or not at all.

    read and check the log -> reference and indexes into our store -> manifest, last

A segment is written once every transaction that began in it has ended, so that its list of aborted
transactions is complete (H9); those whose transactions are open are held back. Indexes of later
segments need the transactions of earlier ones. So where the first new log has any, logs that were
imported are read again, but not written. So is an imported log in which a new one begins.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kip405.crc import crc32c
from kip405.errors import Corrupt, Internal, Invalid, NotFound
from kip405.ids import RemoteLogSegmentId, Uuid
from kip405.lineage import Lineage, remote_lineage
from kip405.rebuilt_indexes import TransactionTracker
from kip405.scan import SegmentScan
from kip405.segments import (
    CustomMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.imports.overlaps import is_copy
from rlm.imports.scanned import LogReading, ScannedLog
from rlm.plans.pinterest_import import (
    ImportPlan,
    UploadedLog,
    check_follows,
    lineage_with,
    segment_id_of,
)
from rlmm.ledger_values import encode_value
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.layout.manifest import Manifest, ManifestObject, build_manifest
from rsm_plugins.layout.pinterest import LOG, MANIFEST_LAYOUT, OFFSET_INDEX, TIME_INDEX
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager

MOST_HELD_BACK = 256
"""Segments whose indexes wait in memory for the end of a transaction."""

_NOBODY = -1
"""In place of the broker that has copied a segment."""
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTarget:
    """Whose segments they become. `software`: who writes the manifests."""

    cluster_id: str
    store_id: Uuid
    software: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of one partition. `held_back`: segments that wait for the end of the transaction
    that began at `open_since`. `stopped`: what is wrong with the log that ended it. `is_cut_off`:
    so many wait that those behind them were not read.
    """

    plan: ImportPlan
    segments: int = 0
    size_bytes: int = 0
    held_back: int = 0
    open_since: int | None = None
    stopped: str | None = None
    is_cut_off: bool = False
    warnings: tuple[str, ...] = ()

    def why_not_whole(self, *, is_growing: bool) -> str | None:
        """Why what was imported is not all of their log, None: it is. Where more is to be uploaded,
        the last segments may wait.
        """
        if self.stopped is not None:
            return f"their log could not be imported from here on: {self.stopped}"
        if self.held_back and (self.is_cut_off or not is_growing):
            return (
                f"{self.held_back} segments of theirs or more from here on wait for the end of the "
                f"transaction that began at {self.open_since}"
            )
        if self.plan.beyond and not is_growing:
            return f"{self.plan.beyond} segments of theirs from here on are above their offset.wm"
        return None


def stop_of(plan: ImportPlan, ends: Mapping[int, int], doubtful: Iterable[int] = ()) -> int:
    """Up to where our segments have all of their log; where it begins if there are none. `ends` of
    our segments by start offset. It is below some of them where another is to be imported again.
    `doubtful`: where it was not known before what follows; a gap behind them still is not.
    """
    first = plan.logs[0].base_offset if plan.logs else min(doubtful, default=plan.begins_at)
    end = max(ends.values(), default=first)
    missing = (one.base_offset for one in plan.logs if one.base_offset not in ends)
    return min(end, _covered_to(ends, min((*missing, *doubtful), default=end)))


def gap_behind(ends: Mapping[int, int], offset: int) -> tuple[int, int] | None:
    """The first offsets [start, next_offset) behind one that none of our segments has, None = all
    up to the last one are there.
    """
    start = _covered_to(ends, offset)
    later = [one for one in ends if one > start]
    return (start, min(later)) if later else None


def _covered_to(ends: Mapping[int, int], offset: int) -> int:
    """Up to where segments have every offset from this one on; itself where none has it."""
    for start in sorted(ends):
        if start > offset:
            break
        offset = max(offset, ends[start])
    return offset


def ends_of(segments: Iterable[RemoteLogSegmentMetadata]) -> dict[int, int]:
    """Where segments end, by start offset."""
    return {one.start_offset: one.next_offset for one in segments}


def _begin_at(logs: Sequence[UploadedLog], first: int) -> int:
    """The log to begin with: the first new one, or the imported one in which that begins."""
    ends = [(one.imported.next_offset, at) for at, one in enumerate(logs[:first]) if one.imported]
    end, at = max(ends, default=(0, first))
    return at if end > logs[first].base_offset else first


def _check_unchanged(log: UploadedLog, scan: SegmentScan) -> None:
    """Invalid if it was imported, and has been replaced by one of the same size."""
    if log.imported is not None and log.imported.custom().log_crc32c != scan.crc32c:
        raise Invalid(
            f"the log at {log.base_offset} has other bytes than when it was imported: it was "
            "replaced; have the old one back"
        )


class PartitionImport:
    """One partition; `imported` are all its segments in our store. `doubtful`: the offsets from
    which on it was not known before what there is.
    """

    def __init__(
        self,
        store: ImportingRemoteStorageManager,
        target: ImportTarget,
        plan: ImportPlan,
        imported: Sequence[RemoteLogSegmentMetadata],
        *,
        doubtful: Iterable[int],
        accepts_gaps: bool,
        report: Callable[[Imported], None],
    ) -> None:
        self._store = store
        self._target = target
        self._plan = plan
        self._imported = sorted(imported, key=lambda one: one.start_offset)
        there = {one.base_offset for one in plan.logs}
        self._gone = [one for one in self._imported if one.start_offset not in there]
        self._ends = ends_of(imported)
        self._doubtful = () if accepts_gaps else tuple(doubtful)
        self._accepts_gaps = accepts_gaps
        self._report = report
        self._segments = 0
        self._size_bytes = 0
        self._warnings: dict[int, str] = {}
        self._tracker = TransactionTracker()
        self._waiting: deque[ScannedLog] = deque()

    @property
    def stop_offset(self) -> int:
        """Where the import stands, by what was written: see `stop_of`."""
        return stop_of(self._plan, self._ends, self._doubtful)

    async def run(self) -> Imported:
        """Import everything that is new. A log that cannot be taken stops the partition; what is
        before it is imported. Unavailable: begin again later.
        """
        try:
            done = await self._run()
            self._check_doubtful()
            return done
        except (Corrupt, Invalid, NotFound) as error:
            return replace(self._state(self._tracker, self._waiting), stopped=str(error))

    def _check_doubtful(self) -> None:
        """Invalid if what was doubtful has a gap, as where the log of a segment that was removed
        from our store has gone too.
        """
        gap = gap_behind(self._ends, min(self._doubtful)) if self._doubtful else None
        if gap is not None:
            raise Invalid(
                f"no log has the offsets {gap[0]} to {gap[1] - 1}, and no segment of ours: "
                "--accept-gaps counts them as lost"
            )

    async def _run(self) -> Imported:
        logs = self._plan.logs
        first = next((at for at, one in enumerate(logs) if one.imported is None), len(logs))
        if first == len(logs):
            return self._state(TransactionTracker(), ())
        done = await self._run_from(_begin_at(logs, first))
        if done is None:
            done = await self._run_from(0)
        if done is None:
            raise Internal(f"{self._plan.partition}: its logs were read from the first one on")
        return done

    async def _run_from(self, first: int) -> Imported | None:
        """None where transactions need the logs before `first` too."""
        self._tracker = tracker = TransactionTracker()
        self._waiting = waiting = deque[ScannedLog]()
        left = deque(self._plan.logs[first:])
        next_offset, lineage = self._before(left[0])
        check_follows(next_offset, left[0], accepts_gaps=self._accepts_gaps)
        tracked_to = 0
        while left:
            log = left.popleft()
            reading = LogReading(log, tracker, tracked_to=tracked_to, following=left)
            await self._compare(reading, log)
            scan = await reading.read(self._store.uploaded, self._name(log))
            if reading.astray:
                self._warn(log, f"{reading.astray} entries of its .index lead astray")
            if reading.has_transactions and first > 0:
                return None
            _check_unchanged(log, scan)
            offsets, times = reading.indexes()
            lineage = lineage_with(lineage.below(log.base_offset), log, scan)
            tracked_to = scan.last_offset + 1
            self._check_comparable(log, tracked_to)
            # Before it is written: it may be this one that was cut short, or is another history.
            await self._check_following(log, reading, tracked_to, left)
            waiting.append(
                ScannedLog(
                    log=log, scan=scan, offset_index=offsets, time_index=times, lineage=lineage
                )
            )
            await self._write_decided(waiting, tracker)
            if len(waiting) >= MOST_HELD_BACK and left:
                return replace(self._state(tracker, waiting), is_cut_off=True)
        return self._state(tracker, waiting)

    async def _check_following(
        self, log: UploadedLog, reading: LogReading, next_offset: int, left: deque[UploadedLog]
    ) -> None:
        """Pass over what the log has, too; Invalid unless it goes on without a gap, and with the
        same bytes where the next log overlaps it.
        """
        uploaded, name = self._store.uploaded, self._name(log)
        going_on = deque[UploadedLog]()
        while left and left[0].base_offset < next_offset:
            other = left.popleft()
            if not await is_copy(
                uploaded, log, name, other, self._name(other), reading.begins.get(other.base_offset)
            ):
                going_on.append(other)
            elif other.imported is None:
                self._warn(other, f"a copy of what the log at {log.base_offset} has: passed over")
        if left and not going_on:
            check_follows(next_offset, left[0], accepts_gaps=self._accepts_gaps)
        left.extendleft(reversed(going_on))

    def _check_comparable(self, log: UploadedLog, next_offset: int) -> None:
        """Invalid if it is new and overlaps a segment of ours whose log has gone since."""
        if log.imported is not None:
            return
        for one in self._gone:
            if one.start_offset < next_offset and log.base_offset < one.next_offset:
                raise Invalid(
                    f"the log at {log.base_offset} overlaps the imported {one.start_offset}, whose "
                    "log is not there to compare the two"
                )

    async def _compare(self, reading: LogReading, log: UploadedLog) -> None:
        """Their indexes are not used; what is wrong with them is said."""
        try:
            reading.compare(
                await self._store.uploaded.read(self._name(log, OFFSET_INDEX)),
                await self._store.uploaded.read(self._name(log, TIME_INDEX)),
            )
        except (Corrupt, NotFound) as error:
            self._warn(log, str(error))

    def _warn(self, log: UploadedLog, text: str) -> None:
        self._warnings[log.base_offset] = f"{log.base_offset}: {text}"

    def _before(self, log: UploadedLog) -> tuple[int | None, Lineage]:
        """Where the segments before a log end, and their leader epochs. A log that was imported
        has been compared with those that it overlaps.
        """
        before = [one for one in self._imported if one.start_offset < log.base_offset]
        if not before:
            return None, Lineage(())
        end = max(one.next_offset for one in before)
        if log.imported is not None:
            end = min(end, log.base_offset)
        return end, remote_lineage(before)

    async def _write_decided(self, waiting: deque[ScannedLog], tracker: TransactionTracker) -> None:
        """Write the logs in which every transaction has ended."""
        while waiting:
            opened = tracker.first_open_offset
            if opened is not None and opened < waiting[0].next_offset:
                return
            scanned = waiting.popleft()
            if scanned.log.imported is None:
                await self._write(scanned, tracker)
                self._report(self._state(tracker, waiting))
            tracker.forget_below(scanned.log.base_offset)  # the next log may repeat its end

    async def _write(self, scanned: ScannedLog, tracker: TransactionTracker) -> None:
        indexes, txn_index_empty = scanned.indexes(tracker)
        custom = CustomMetadata(
            store_id=self._target.store_id,
            indexes_size_bytes=len(indexes),
            log_crc32c=scanned.scan.crc32c,
            indexes_crc32c=crc32c(indexes),
        )
        locator = self._locator(scanned.log, custom)
        plugin = await self._store.import_segment(
            locator, scanned.scan.size_bytes, scanned.scan.crc32c, indexes
        )
        finished = self._metadata(
            scanned, locator, replace(custom, plugin=plugin), txn_index_empty=txn_index_empty
        )
        await self._store.write_manifest(
            finished.locator(self._target.cluster_id), self._manifest(scanned.log, finished)
        )
        self._ends[finished.start_offset] = finished.next_offset
        self._segments += 1
        self._size_bytes += scanned.scan.size_bytes

    def _name(self, log: UploadedLog, suffix: str = LOG) -> str:
        partition = self._plan.partition
        return self._store.layout.file(
            partition.topic, partition.partition, log.base_offset, suffix
        )

    def _locator(self, log: UploadedLog, custom: CustomMetadata) -> SegmentLocator:
        partition = self._plan.partition
        own_id = segment_id_of(self._target.store_id, partition.topic_id, self._name(log))
        return SegmentLocator(
            cluster_id=self._target.cluster_id,
            segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=own_id),
            start_offset=log.base_offset,
            custom_metadata=custom.encode(),
        )

    def _metadata(
        self,
        scanned: ScannedLog,
        locator: SegmentLocator,
        custom: CustomMetadata,
        *,
        txn_index_empty: bool,
    ) -> RemoteLogSegmentMetadata:
        log, scan = scanned.log, scanned.scan
        return RemoteLogSegmentMetadata(
            segment_id=locator.segment_id,
            start_offset=log.base_offset,
            end_offset=scan.last_offset,
            broker_id=_NOBODY,
            max_timestamp_ms=max(scan.max_timestamp_ms, 0) or log.modified_ms,
            event_timestamp_ms=log.modified_ms,
            segment_leader_epochs=scanned.lineage.clip(log.base_offset, scanned.next_offset),
            segment_size_bytes=scan.size_bytes,
            custom_metadata=custom.encode(),
            state=_FINISHED,
            txn_index_empty=txn_index_empty,
        )

    def _manifest(self, log: UploadedLog, finished: RemoteLogSegmentMetadata) -> bytes:
        partition = self._plan.partition
        custom = finished.custom()
        indexes = object_name(finished.locator(self._target.cluster_id), ObjectKind.INDEXES)
        return build_manifest(
            Manifest(
                cluster_id=self._target.cluster_id,
                store_id=self._target.store_id,
                topic=partition.topic,
                topic_id=partition.topic_id,
                partition=partition.partition,
                segment_id=finished.segment_id.id,
                start_offset=finished.start_offset,
                end_offset=finished.end_offset,
                remote_log_start_offset=0,
                layout=MANIFEST_LAYOUT,
                software=self._target.software,
                objects=(
                    ManifestObject(
                        name=self._name(log),
                        size_bytes=finished.segment_size_bytes,
                        crc32c=custom.log_crc32c,
                    ),
                    ManifestObject(
                        name=indexes,
                        size_bytes=custom.indexes_size_bytes,
                        crc32c=custom.indexes_crc32c,
                    ),
                ),
                segment_metadata=encode_value(finished),
            )
        )

    def _state(self, tracker: TransactionTracker, waiting: Collection[ScannedLog]) -> Imported:
        return Imported(
            plan=self._plan,
            segments=self._segments,
            size_bytes=self._size_bytes,
            held_back=sum(one.log.imported is None for one in waiting),
            open_since=tracker.first_open_offset if waiting else None,
            warnings=tuple(self._warnings.values()),
        )
