"""Views, positions and reads of the remote tier alone (REMOTE_ONLY), by ledger, settings and store.

No leader, snapshot or broker is needed, so any service can answer, through the same read path as
the proxy. Kafka is asked briefly, so that the answer is as fresh as possible; while Kafka is away,
the view answers with what it has, once it was ready. This module must not know gRPC streams.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import structlog

from kafka_protocol.apis.offsets import LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import MAX_OFFSET, PartitionKey, TopicIdPartition, Uuid
from kip405.topic_names import checked_name
from rlm.clock import Clock
from rlm.plans.attachment import Doubt
from rlm.plans.coverage import ranges_without_records
from rlm.plans.history import published_lineage
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.history import RemoteHistory
from rlm.remote_log.list_offsets import (
    Position,
    position_of_timestamp,
    remote_position,
)
from rlm.remote_log.reads import (
    Piece,
    Ranges,
    ReadRequest,
    below,
    below_log_start,
    clipped,
    lost,
)
from rlm.remote_log.remote_state import RemotePartitionState
from rlm.remote_log.tier import ChangedMeanwhile
from rlm.remote_log.topic_refs import topic_id_of, topic_records
from rlm.v1 import fetch_pb2
from rlmm.ledger import PartitionLedger
from rlmm.records import ledger_partition
from rlmm.settings_records import HistoryRecord, StartRecord, TopicRecord
from rlmm.settings_view import SettingsView

BARRIER_DEADLINE_MS = 2_000
QUIET_MS = 5_000
"""How long Kafka is not asked again after it did not answer, so that calls do not all wait."""
_NOTHING = -1
_OF_THE_END = frozenset({LATEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, MAX_TIMESTAMP})
Doubts = Callable[[PartitionKey], tuple[Doubt, ...]]
log = structlog.get_logger()


class _Settings(Protocol):
    @property
    def is_ready(self) -> bool: ...

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None: ...


class _Ledger(Protocol):
    @property
    def is_ready(self) -> bool: ...

    @property
    def damage(self) -> str | None: ...

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    def partitions(self) -> tuple[PartitionKey, ...]: ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None: ...


def no_doubts(key: PartitionKey) -> tuple[Doubt, ...]:
    """Where settings and ledger are those of a cluster, what they say is certain."""
    return ()


class RemoteView:
    """Answers from ledger and settings; `clock` measures how long Kafka is not asked. `absent`: why
    a topic that they do not have is not there.
    """

    def __init__(
        self,
        *,
        settings: _Settings,
        ledger: _Ledger,
        clock: Clock,
        doubts: Doubts = no_doubts,
        absent: str = "is not enabled",
    ) -> None:
        self._doubts = doubts
        self._absent = absent
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._quiet_until_ms = -1
        self._names: Mapping[str, TopicRecord] = {}
        self._names_version = -1

    async def partition(self, ref: fetch_pb2.TopicRef, number: int) -> RemotePartitionState:
        """One partition, as fresh as Kafka allows.

        NotFound: no such topic is tiered, or it has no such partition. Unavailable: that, or that
        it has no records, is not certain while Kafka is away; or the views were never read to their
        end.
        """
        if number < 0:
            raise NotFound(f"there is no partition {number}")
        known = self._find(ref)
        keys = [PartitionKey(known.topic_id, number)] if known else []
        is_fresh = await self._catch_up(keys)
        with _denying(is_fresh=is_fresh):
            key = PartitionKey(self._required(ref).topic_id, number)
        if key not in keys:
            is_fresh = await self._catch_up([key])
        with _denying(is_fresh=is_fresh):
            found = self.current(self._required(ref), number)
            if not (is_fresh or found.has_records):
                found.refuse_unreadable()
                raise NotFound(f"{found.topic_id_partition} has no remote record")
            return found

    def current(self, record: TopicRecord, number: int) -> RemotePartitionState:
        """One partition as ledger and settings have it now. NotFound: the topic has no such
        partition.
        """
        key = PartitionKey(record.topic_id, number)
        ledger = self._ledger.ledger(key)
        start = self._settings.view.remote_log_start(key)
        if start is None and not ledger.entries:
            raise NotFound(f"topic {record.name} has no partition {number} that is tiered")
        partition = TopicIdPartition(topic_id=record.topic_id, topic=record.name, partition=number)
        published, unread = self._published(key)
        frozen = published.frozen if published else None
        return RemotePartitionState(
            topic_id_partition=partition,
            history=RemoteHistory(
                name=str(partition),
                ledger=ledger,
                # A frozen partition keeps its end: a plan without its records would skip them.
                lineage=published_lineage(ledger, published if frozen is None else None),
                log_end_offset=MAX_OFFSET,
                trusted=self._ledger.damage is None,
                empty=ranges_without_records(self._settings.view.holes(key)),
            ),
            written_start=start,
            settings_version=self._settings.view.version,
            frozen=frozen,
            unread=unread,
            doubts=self._doubts(key),
        )

    def again(self, state: RemotePartitionState) -> RemotePartitionState:
        """The same partition in its current state. NotFound: it is being deleted. Fenced: it is
        frozen now. Unavailable: the lineage that was read is no longer its lineage.
        """
        if self._is_unchanged(state):
            return state
        record = self._settings.view.topic(state.topic_id_partition.topic_id)
        if record is None or record.state == "deleting":
            raise NotFound(f"topic {state.topic_id_partition.topic} is not enabled any more")
        now = self.current(record, state.topic_id_partition.partition)
        now.refuse_unreadable()
        last = state.next_offset - 1
        was, epoch = state.epoch_for_offset(last), now.epoch_for_offset(last)
        if last >= now.log_start_offset and epoch not in (was, _NOTHING):
            raise Unavailable(
                f"{now.topic_id_partition}: its history has changed, offset {last} is of leader "
                f"epoch {epoch} and not of {was}"
            )
        return now

    def _is_unchanged(self, state: RemotePartitionState) -> bool:
        """Whether no record has arrived since; a stream asks this before every message."""
        history = state.history
        return (
            self._settings.view.version == state.settings_version
            and self._ledger.ledger(state.topic_id_partition.key) is history.ledger
            and (self._ledger.damage is None) == history.trusted
        )

    def _published(self, key: PartitionKey) -> tuple[HistoryRecord | None, str | None]:
        """The lineage that the leader has published, or why it cannot be read."""
        try:
            return self._settings.view.history(key), None
        except Corrupt as error:
            return None, str(error)

    async def partitions(self, ref: fetch_pb2.TopicRef) -> tuple[TopicRecord, tuple[int, ...]]:
        """The tiered topic of the reference and its partitions, fresh. Errors as of `partition`."""
        return (await self._with_partitions([await self.topic(ref)]))[0]

    async def topic(self, ref: fetch_pb2.TopicRef) -> TopicRecord:
        """The tiered topic of the reference, fresh. Errors as of `partition`."""
        with _denying(is_fresh=await self._catch_up([])):
            return self._required(ref)

    async def topics(self, names: Iterable[str]) -> tuple[tuple[TopicRecord, tuple[int, ...]], ...]:
        """Topics by name, all if no name is given, with the known partitions of each.

        NotFound: one of them is not tiered. Unavailable: that is not certain while Kafka is away.
        """
        wanted = [fetch_pb2.TopicRef(name=name) for name in dict.fromkeys(names)]
        with _denying(is_fresh=await self._catch_up([])):
            records = [self._required(ref) for ref in wanted] if wanted else self._all()
        return await self._with_partitions(records)

    async def _with_partitions(
        self, records: list[TopicRecord]
    ) -> tuple[tuple[TopicRecord, tuple[int, ...]], ...]:
        chosen = {record.topic_id for record in records}
        await self._catch_up([key for key in self._known_keys() if key.topic_id in chosen])
        found: dict[Uuid, list[int]] = {record.topic_id: [] for record in records}
        for key in self._known_keys():
            if key.topic_id in found and self.is_there(key):
                found[key.topic_id].append(key.partition)
        return tuple((record, tuple(sorted(found[record.topic_id]))) for record in records)

    def is_there(self, key: PartitionKey) -> bool:
        """Whether `current` finds the partition; only tombstones may be left of it."""
        has_start = self._settings.view.remote_log_start(key) is not None
        return has_start or bool(self._ledger.ledger(key).entries)

    def _known_keys(self) -> set[PartitionKey]:
        """Every partition that appears in ledger or settings."""
        starts = (
            found.record.partition
            for found in self._settings.view.records()
            if isinstance(found.record, StartRecord)
        )
        return {*self._ledger.partitions(), *starts}

    async def _catch_up(self, keys: Iterable[PartitionKey]) -> bool:
        """Pass barriers if Kafka answers soon, else False. Concurrent calls share one request."""
        is_ready = self._settings.is_ready and self._ledger.is_ready
        if is_ready and self._clock.monotonic_ms() < self._quiet_until_ms:
            return False
        one_each = {ledger_partition(key): key for key in keys}
        try:
            await asyncio.gather(
                self._settings.barrier(BARRIER_DEADLINE_MS),
                *(self._ledger.barrier(key, BARRIER_DEADLINE_MS) for key in one_each.values()),
            )
        except RemoteStorageError as error:
            if not (self._settings.is_ready and self._ledger.is_ready):
                raise Unavailable(f"ledger and settings were not read yet: {error}") from error
            self._quiet_until_ms = self._clock.monotonic_ms() + QUIET_MS
            log.debug("remote_view_as_it_is", error=str(error))
            return False
        return True

    def _required(self, ref: fetch_pb2.TopicRef) -> TopicRecord:
        record = self._find(ref)
        if record is None:
            named = ref.name if ref.WhichOneof("topic") == "name" else topic_id_of(ref)
            raise NotFound(f"topic {named} {self._absent}")
        return record

    def _find(self, ref: fetch_pb2.TopicRef) -> TopicRecord | None:
        kind = ref.WhichOneof("topic")
        if kind is None:
            raise Invalid("the call names no topic: give a name or a topic id")
        if kind == "name":
            return self._by_name().get(checked_name(ref.name))
        record = self._settings.view.topic(topic_id_of(ref))
        return None if record is None or record.state == "deleting" else record

    def _all(self) -> list[TopicRecord]:
        names = self._by_name()
        return [names[name] for name in sorted(names)]

    def _by_name(self) -> Mapping[str, TopicRecord]:
        """Tiered topics; of several with one name, the topic of the newest decision: it is the
        current topic, or the last one that existed (H39).
        """
        view = self._settings.view
        if self._names_version != view.version:
            records = topic_records(view.records())
            self._names = {record.name: record for record in records if record.state != "deleting"}
            self._names_version = view.version
        return self._names


@contextmanager
def _denying(*, is_fresh: bool) -> Iterator[None]:
    """A topic may have been enabled, and trimmed, since Kafka last answered: only a fresh view
    proves that there is nothing (H17).
    """
    try:
        yield
    except NotFound as error:
        if is_fresh:
            raise
        raise Unavailable(f"{error}, as far as was read: Kafka does not answer now") from error


class _Reader(Protocol):
    """rlm.remote_log.history.LineageReader."""

    async def read(self, history: RemoteHistory, request: RemoteRead) -> RemoteRecords: ...

    async def offset_for_timestamp(
        self, history: RemoteHistory, timestamp_ms: int, *, start: int, next_offset: int
    ) -> TimestampedOffset | None: ...


class RemoteReading:
    """Reads through the view and the lineage reader; owns neither."""

    def __init__(self, *, view: RemoteView, reader: _Reader) -> None:
        self._view = view
        self._reader = reader

    async def stream(
        self, ref: fetch_pb2.TopicRef, partition: int, request: ReadRequest
    ) -> AsyncGenerator[Piece, None]:
        """Pieces in order up to the requested end or the remote end as it is now; nothing when it
        begins there. The last piece may have no batches: it shows that the stream is complete.

        Invalid: below the remote log start, also when that moves up meanwhile. Corrupt: objects are
        damaged or missing. Errors as of RemoteView.partition, Unavailable as of LineageReader.read.
        """
        state = await self._view.partition(ref, partition)
        _refuse_ended(state, request.start_offset)
        remote_end = state.next_offset
        wanted_end = MAX_OFFSET if request.end_offset is None else request.end_offset
        offset, upper = request.start_offset, min(wanted_end, remote_end)
        if remote_end <= offset < wanted_end < MAX_OFFSET:
            # A caller that asks for exactly this offset takes an empty answer for its absence.
            state.history.refuse_unsettled(offset, offset + 1)
        while offset < upper:
            state = self._view.again(state)
            _refuse_ended(state, offset)
            certain_end = min(state.certain_end(offset), remote_end)
            try:
                piece = await self._piece(state, request, offset, upper, remote_end, certain_end)
            except (NotFound, Corrupt, ChangedMeanwhile) as error:
                raise await self._lost(state, error, offset) from error
            yield piece
            offset = piece.next_offset
        if wanted_end > remote_end:
            state.refuse_doubtful_end()

    async def _lost(
        self,
        state: RemotePartitionState,
        error: NotFound | Corrupt | ChangedMeanwhile,
        offset: int,
    ) -> RemoteStorageError:
        """The error for missing objects, as current as Kafka allows: they may have been deleted in
        order. Invalid: the offset is below the remote log start by now.
        """
        topic = fetch_pb2.TopicRef(topic_id=state.topic_id_partition.topic_id.raw)
        now = await self._view.partition(topic, state.topic_id_partition.partition)
        _refuse_ended(now, offset)
        if isinstance(error, ChangedMeanwhile):
            return error
        is_same = now.history.ledger.version == state.history.ledger.version
        if is_same and now.log_start_offset == state.log_start_offset:
            return lost(state.topic_id_partition, error)
        return Unavailable(f"{state.topic_id_partition}: its segments have changed meanwhile")

    async def _piece(
        self,
        state: RemotePartitionState,
        request: ReadRequest,
        offset: int,
        upper: int,
        remote_end: int,
        certain_end: int,
    ) -> Piece:
        found = await self._reader.read(
            state.history,
            RemoteRead(
                topic_id=state.topic_id_partition.topic_id,
                partition=state.topic_id_partition.partition,
                offset=offset,
                # Not the caller's end: a batch that extends beyond the bound is omitted.
                upper_offset=certain_end,
                max_bytes=request.max_bytes,
                at_least_one=True,
                read_committed=request.read_committed,
            ),
        )
        batches, next_offset = below(found, offset, request.max_bytes, upper)
        if not batches:
            if certain_end < upper:
                state.refuse_doubtful(upper)  # what is omitted may extend beyond the bound
            for hole in clipped(found.missing, offset, upper):
                state.history.refuse_unsettled(*hole)
            return _piece(state, (), upper, remote_end, missing=found.missing, begin=offset)
        return _piece(
            state,
            batches,
            next_offset,
            remote_end,
            missing=found.missing,
            begin=offset,
            aborted=found.aborted,
        )

    async def position(self, ref: fetch_pb2.TopicRef, partition: int, timestamp: int) -> Position:
        """Offset of a timestamp or a special position; -1 where no remote record matches.

        Latest is the remote end and earliest the remote log start; they are equal where there is no
        remote record. Invalid: a special position that only a broker knows. Fenced: it depends on
        an end that is doubtful, and who reads up to it would take it for all there was.
        """
        state = await self._view.partition(ref, partition)
        state.refuse_unreadable()
        if timestamp in _OF_THE_END:
            state.refuse_doubtful_end()
        find = partial(self._offset_for_timestamp, state)
        if timestamp != MAX_TIMESTAMP:
            return await remote_position(state, find, timestamp)
        usable = state.history.usable(state.log_start_offset)
        latest = max((one.metadata.max_timestamp_ms for one in usable), default=-1)
        return await position_of_timestamp(find, latest)

    async def _offset_for_timestamp(
        self, state: RemotePartitionState, timestamp_ms: int
    ) -> TimestampedOffset | None:
        try:
            found = await self._reader.offset_for_timestamp(
                state.history,
                timestamp_ms,
                start=state.log_start_offset,
                next_offset=state.next_offset,
            )
        except (NotFound, Corrupt, ChangedMeanwhile) as error:
            raise await self._lost(state, error, MAX_OFFSET) from error
        state.refuse_doubtful(MAX_OFFSET if found is None else found.offset + 1)
        return found


def _refuse_ended(state: RemotePartitionState, offset: int) -> None:
    state.refuse_unreadable()
    if offset < state.log_start_offset:
        raise below_log_start(state.topic_id_partition, offset, state.log_start_offset)


def _piece(
    state: RemotePartitionState,
    batches: Sequence[ByteBuffer],
    next_offset: int,
    remote_end: int,
    *,
    missing: Ranges,
    begin: int,
    aborted: tuple[tuple[int, int], ...] = (),
) -> Piece:
    return Piece(
        batches=list(batches),
        next_offset=next_offset,
        aborted=aborted,
        high_watermark=remote_end,
        last_stable_offset=remote_end,
        log_start_offset=state.log_start_offset,
        is_remote=True,
        missing=clipped(missing, begin, next_offset),
    )
