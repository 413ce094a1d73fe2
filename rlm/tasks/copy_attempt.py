"""One attempt to copy one segment, in exactly the order of G3; the sweep cleans up failed attempts.

    prepare (off the loop) -> we lead, the topic may be copied -> COPY_SEGMENT_STARTED read back ->
    objects -> store and file are still the same, we still lead, the attempt is valid -> manifest ->
    COPY_SEGMENT_FINISHED read back

Attempts of later segments of the partition may run at the same time; copy_order says which steps
wait for the attempt before. The attempts of all partitions together are bounded (G10).

An attempt never deletes anything: whatever the outcome of a publish was, the sweep finds out behind
a barrier (H10). The manifest is the point of no return: from then on the copy is adopted, not
swept.

StoreWrites tracks which stores accept no segments: the last writes failed and none has succeeded
since. A store that is full or read-only answers every read, so no other check detects it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from kip405.contracts import SegmentWriter
from kip405.errors import Fenced, Invalid, RemoteStorageError, Unavailable
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    CustomMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.log_dir.scanner import LocalSegment, sample
from rlm.reading.remote_index import RemoteIndex
from rlm.remote_log.ports import Ledger, Stores, Targets
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.spans import NO_SPAN, Span, SpanReference, Tracer
from rlm.stores.stores import CopyTarget
from rlm.tasks.copy_checks import CopyChecks
from rlm.tasks.copy_order import Step, Turn
from rlm.tasks.copy_quota import CopyQuota
from rlm.tasks.copy_slots import CopyLimit, CopySlots
from rlm.tasks.segment_data import PreparedSegment, RemoteIndexEntries, prepare
from rlmm.ledger_values import encode_value
from rlmm.records import NO_PREVIOUS
from rsm_plugins.files.page_cache import PageCache
from rsm_plugins.layout.keys import data_objects_of, object_name
from rsm_plugins.layout.manifest import Manifest, ManifestObject, build_manifest
from rsm_plugins.layout.stored import stored_contents
from rsm_plugins.threads import Threads

_LEAST_FAILURES = 2
"""A single failure may be due to one segment or one connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    error: RemoteStorageError
    count: int


class StoreWrites:
    """The outcomes of the last writes by store; each writer reports its own."""

    def __init__(self) -> None:
        self._failed: dict[Uuid, _Failed] = {}

    @contextmanager
    def noted(self, store_id: Uuid) -> Iterator[None]:
        """Wraps one write to a store; errors are passed on."""
        try:
            yield
        except RemoteStorageError as error:
            before = self._failed.get(store_id)
            count = before.count + 1 if before else 1
            self._failed[store_id] = _Failed(error=error, count=count)
            raise
        self._failed.pop(store_id, None)

    def error(self, store_id: Uuid | None) -> str | None:
        """Why the store accepts no segments; None without a sign of that."""
        found = None if store_id is None else self._failed.get(store_id)
        return str(found.error) if found is not None and found.count >= _LEAST_FAILURES else None


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_CHECKED_FOR_MS = 2_000
"""How old the last checks may be when the manifest is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """Settings of every attempt. `deadline_ms` (copy.deadline.ms): below the sweep grace (H12).

    `limit`: attempts of all partitions together. `index_interval_bytes`: how much of a log one
    entry of the remote log index is for.
    """

    cluster_id: str
    node_id: int
    writer: Uuid
    software: str
    deadline_ms: int
    barrier_deadline_ms: int
    limit: CopyLimit
    index_interval_bytes: int


class AttemptEnded(Protocol):
    """Counts attempts of a topic; those that were cancelled are not counted."""

    def __call__(self, topic: str, *, failed: bool) -> None: ...


class LiveAttempts:
    """Ids of the segments that this process is copying; the sweep leaves them alone."""

    def __init__(self) -> None:
        self._ids: set[Uuid] = set()

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._ids

    def __iter__(self) -> Iterator[Uuid]:
        return iter(tuple(self._ids))

    def __len__(self) -> int:
        return len(self._ids)

    @contextmanager
    def working_on(self, segment_id: Uuid) -> Iterator[None]:
        self._ids.add(segment_id)
        try:
            yield
        finally:
            self._ids.discard(segment_id)


class Copier:
    """Makes attempts; keeps no state between them but the ids of the running ones."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        ledger: Ledger,
        stores: Stores,
        targets: Targets,
        live: LiveAttempts,
        writes: StoreWrites,
        quota: CopyQuota,
        threads: Threads,
        page_cache: PageCache,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
        settings: CopySettings,
        ended: AttemptEnded,
        remote_index: RemoteIndex | None,
        tracer: Tracer | None = None,
    ) -> None:
        self._remote_index = remote_index
        self._ended = ended
        self._tracer = tracer
        self._ledger = ledger
        self._stores = stores
        self._targets = targets
        self._live = live
        self._writes = writes
        self._quota = quota
        self._threads = threads
        self._page_cache = page_cache
        self._clock = clock
        self._new_uuid = new_uuid
        self._settings = settings
        self._slots = CopySlots(settings.limit)
        self._checks = CopyChecks(
            snapshots=snapshots,
            ledger=ledger,
            stores=stores,
            cluster_id=settings.cluster_id,
            barrier_deadline_ms=settings.barrier_deadline_ms,
        )

    def change_slots(self, slots: int) -> None:
        """So many segments are copied at a time from now on."""
        self._slots.change(slots)

    async def check_target(self, partition: TopicIdPartition) -> None:
        """Invalid unless the store for the partition's next segment is the expected one (H11).

        Unavailable while it is away or not known yet. Called before an attempt leaves a record.
        """
        store_id = self._targets.target(partition).store_id
        problem = await self._checks.store_problem(store_id)
        if problem is not None:
            raise Invalid(problem)

    async def copy(
        self, snapshot: PartitionSnapshot, segment: LocalSegment, turn: Turn
    ) -> RemoteLogSegmentMetadata:
        """Copy one segment; returns the FINISHED metadata once it was read back as accepted.

        Waits while too many attempts are running, and for the quota. `turn`: see copy_order.
        Fenced: leadership, file or ledger changed meanwhile. Unavailable: try again later, with a
        fresh id. OutcomeUnknown: the record may be there; the next snapshot passes a barrier first.
        """
        topic = snapshot.led.topic_id_partition.topic
        try:
            finished = await self._admitted(snapshot, segment, turn)
        except RemoteStorageError:
            self._ended(topic, failed=True)
            raise
        self._ended(topic, failed=False)
        return finished

    async def _admitted(
        self, snapshot: PartitionSnapshot, segment: LocalSegment, turn: Turn
    ) -> RemoteLogSegmentMetadata:
        segment_id = self._new_uuid()
        await turn.after(Step.ADMITTED)
        async with self._slots.share(segment.size_bytes):
            turn.taken(Step.ADMITTED)
            await self._quota.take(segment.size_bytes)
            deadline_at_ms = self._clock.monotonic_ms() + self._settings.deadline_ms
            with self._live.working_on(segment_id):
                try:
                    async with asyncio.timeout(self._settings.deadline_ms / 1000):
                        with self._traced(snapshot.led, segment, segment_id) as span:
                            parent = NO_SPAN if span is None else span.reference
                            return await self._attempt(
                                snapshot, segment, segment_id, deadline_at_ms, turn, parent
                            )
                except TimeoutError as error:
                    raise self._too_late(snapshot.led, segment_id) from error

    def _traced(
        self, led: LedPartition, segment: LocalSegment, segment_id: Uuid
    ) -> AbstractContextManager[Span | None]:
        if self._tracer is None:
            return nullcontext()
        partition = led.topic_id_partition
        return self._tracer.span(
            "copy",
            topic=partition.topic,
            partition=partition.partition,
            segment_id=str(segment_id),
            base_offset=segment.base_offset,
            bytes=segment.size_bytes,
            leader_epoch=led.leader_epoch,
        )

    def _step(self, name: str, parent: SpanReference) -> AbstractContextManager[Span | None]:
        return nullcontext() if self._tracer is None else self._tracer.span(name, parent)

    async def _attempt(
        self,
        snapshot: PartitionSnapshot,
        segment: LocalSegment,
        segment_id: Uuid,
        deadline_at_ms: int,
        turn: Turn,
        parent: SpanReference,
    ) -> RemoteLogSegmentMetadata:
        led = snapshot.led
        target = self._targets.target(led.topic_id_partition)
        store: SegmentWriter = self._stores.manager(target.store_id)
        entries = self._entries(led, segment, segment_id, target)
        with self._step("copy: read", parent):
            was_cached, prepared = await self._threads.run(self._read, snapshot, segment, entries)
        await self._checks.before_upload(led, target.store_id)
        started = self._started(led, prepared, segment_id, target)
        await turn.take(Step.STARTED)
        with self._step("copy: publish started", parent):
            await self._ledger.publish(started, led.leader_epoch, NO_PREVIOUS)
        with self._step("copy: upload", parent), self._writes.noted(target.store_id):
            plugin = await store.copy_log_segment_data(
                started.locator(self._settings.cluster_id), prepared.data
            )
        if not was_cached:
            await self._threads.run(self._page_cache.drop, segment.path)
        await turn.take(Step.UPLOADED)
        await self._check_in_turn(led, prepared, segment_id, target, turn)
        finished = self._finished(started, prepared, plugin)
        if self._clock.monotonic_ms() >= deadline_at_ms:
            raise self._too_late(led, segment_id)
        with self._step("copy: write manifest", parent):
            await store.write_manifest(
                finished.locator(self._settings.cluster_id), self._manifest(snapshot, finished)
            )
        turn.taken(Step.STORED)
        with self._step("copy: publish finished", parent):
            await self._ledger.publish(finished, led.leader_epoch, int(_STARTED))
        if self._remote_index is not None:
            self._remote_index.keep(finished, prepared.data.indexes)
        return finished

    def _entries(
        self, led: LedPartition, segment: LocalSegment, segment_id: Uuid, target: CopyTarget
    ) -> RemoteIndexEntries:
        """What index entries of the segment name: the object with its records, by its key below the
        store's prefix.
        """
        locator = SegmentLocator(
            cluster_id=self._settings.cluster_id,
            segment_id=RemoteLogSegmentId(topic_id_partition=led.topic_id_partition, id=segment_id),
            start_offset=segment.base_offset,
            custom_metadata=_envelope(target),
        )
        return RemoteIndexEntries(
            remote_object=f"{target.store_id}/{object_name(locator, data_objects_of(locator)[0])}",
            interval_bytes=self._settings.index_interval_bytes,
        )

    def _read(
        self, snapshot: PartitionSnapshot, segment: LocalSegment, entries: RemoteIndexEntries
    ) -> tuple[bool, PreparedSegment]:
        """Whether the page cache held the file before it was read, and what was read."""
        was_cached = self._page_cache.holds(segment.path)
        return was_cached, prepare(snapshot.log, segment, snapshot.lineage, entries)

    async def _check_in_turn(
        self,
        led: LedPartition,
        prepared: PreparedSegment,
        segment_id: Uuid,
        target: CopyTarget,
        turn: Turn,
    ) -> None:
        """Return when it is the turn of this manifest, right after the checks."""
        checked_at_ms = self._clock.monotonic_ms()
        await self._check_unchanged(led, prepared, segment_id, target)
        await turn.after(Step.STORED)
        if self._clock.monotonic_ms() - checked_at_ms > _CHECKED_FOR_MS:
            await self._check_unchanged(led, prepared, segment_id, target)

    async def _check_unchanged(
        self, led: LedPartition, prepared: PreparedSegment, segment_id: Uuid, target: CopyTarget
    ) -> None:
        """Fenced unless file, store, leadership and attempt are as before the upload (H11, H13)."""
        partition = led.topic_id_partition
        await self._checks.after_upload(led, target.store_id)
        if await self._threads.run(sample, prepared.segment) != prepared.file:
            raise Fenced(f"{prepared.segment.path} changed while it was copied")
        entry = self._ledger.entry(RemoteLogSegmentId(topic_id_partition=partition, id=segment_id))
        is_ours = entry is not None and entry.writer == self._settings.writer
        if entry is None or not is_ours or entry.state is not _STARTED or entry.disputed:
            raise Fenced(
                f"{partition}: another task or service ended the attempt {segment_id} meanwhile"
            )

    def _started(
        self, led: LedPartition, prepared: PreparedSegment, segment_id: Uuid, target: CopyTarget
    ) -> RemoteLogSegmentMetadata:
        settings = self._settings
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(topic_id_partition=led.topic_id_partition, id=segment_id),
            start_offset=prepared.segment.base_offset,
            end_offset=prepared.next_offset - 1,
            broker_id=settings.node_id,
            max_timestamp_ms=prepared.max_timestamp_ms,
            event_timestamp_ms=self._clock.now_ms(),
            segment_leader_epochs=prepared.epochs,
            segment_size_bytes=prepared.data.log.size_bytes,
            custom_metadata=_envelope(target),
            state=_STARTED,
            txn_index_empty=prepared.txn_index_empty,
        )

    def _finished(
        self, started: RemoteLogSegmentMetadata, prepared: PreparedSegment, plugin: bytes
    ) -> RemoteLogSegmentMetadata:
        custom = replace(
            started.custom(),
            indexes_size_bytes=len(prepared.data.indexes),
            log_crc32c=prepared.data.log_crc32c,
            indexes_crc32c=prepared.data.indexes_crc32c,
            plugin=plugin,
        )
        return started.in_state(
            _FINISHED,
            event_timestamp_ms=self._clock.now_ms(),
            broker_id=self._settings.node_id,
            custom_metadata=custom.encode(),
        )

    def _manifest(self, snapshot: PartitionSnapshot, finished: RemoteLogSegmentMetadata) -> bytes:
        partition = snapshot.led.topic_id_partition
        custom = finished.custom()
        locator = finished.locator(self._settings.cluster_id)
        contents = stored_contents(locator, finished.segment_size_bytes)
        return build_manifest(
            Manifest(
                cluster_id=self._settings.cluster_id,
                store_id=custom.store_id,
                topic=partition.topic,
                topic_id=partition.topic_id,
                partition=partition.partition,
                segment_id=finished.segment_id.id,
                start_offset=finished.start_offset,
                end_offset=finished.end_offset,
                remote_log_start_offset=snapshot.remote_log_start_offset or 0,
                layout=str(custom.layout),
                software=self._settings.software,
                objects=tuple(
                    ManifestObject(
                        name=object_name(locator, kind),
                        size_bytes=content.size_bytes,
                        crc32c=content.crc32c,
                    )
                    for kind, content in contents.items()
                ),
                segment_metadata=encode_value(finished),
            )
        )

    def _too_late(self, led: LedPartition, segment_id: Uuid) -> Unavailable:
        return Unavailable(
            f"{led.topic_id_partition}: copy {segment_id} took more than "
            f"{self._settings.deadline_ms} ms (copy.deadline.ms)"
        )


def _envelope(target: CopyTarget) -> bytes:
    """The custom metadata of an attempt before anything is stored."""
    custom = CustomMetadata(
        store_id=target.store_id, entropy_bits=target.entropy_bits, layout=target.layout
    )
    return custom.encode()
