"""Builds the answer of one Fetch from the broker's partitions and those of the remote tier.

Sizes (KIP-74), watermarks (H4) and errors (H25) are rules for the whole answer, whichever tier gave
a part. Record bytes are passed by reference. This module must not know how long anything waited.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import structlog

from kafka_protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_SERVER_ERROR,
)
from kafka_protocol.fetch import (
    FetchedPartition,
    FetchResponse,
    SplicedPartition,
    splice_fetch_response,
)
from kafka_protocol.primitives import Buffer
from rlm.clock import Clock
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.fetch_plan import (
    AnswerRoom,
    FetchPlan,
    Key,
    PartitionFetch,
    Source,
    first_batch_bytes,
)
from rlm.proxy.further_reads import Unread
from rlm.proxy.reads import Permit, RemoteReads, frozen, is_lost, taken_bytes
from rlm.proxy.settings import ProxyMetrics
from rlm.proxy.splice import (
    CheckedAnswer,
    Replacement,
    answers_of,
    empty_clean,
    patch_clean,
    splice_records,
)
from rlm.reading.values import RemoteRecords
from rlm.remote_log.tier import upper_offset
from rlm.spans import Tracer

log = structlog.get_logger(__name__)

_MOST_REMEMBERED = 10_000


class StorageErrors:
    """Remembers when a lost partition was last reported to this client; once per max_wait is enough
    (H25).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: dict[Key, int] = {}

    def is_due(self, key: Key, max_wait_ms: int) -> bool:
        """Whether to report it now; if so, the time is remembered."""
        now_ms = self._clock.monotonic_ms()
        last_ms = self._last_ms.get(key)
        if last_ms is not None and now_ms - last_ms < max_wait_ms:
            return False
        if len(self._last_ms) >= _MOST_REMEMBERED:
            self._last_ms.clear()
        self._last_ms[key] = now_ms
        return True


class FetchAnswer:
    """The answer of one Fetch as far as it is known, and at the end as pieces of bytes."""

    def __init__(
        self,
        plan: FetchPlan,
        reads: RemoteReads,
        permit: Permit,
        metrics: ProxyMetrics,
        storage_errors: StorageErrors,
        counts: ClientCounts,
    ) -> None:
        self._counts = counts
        self.plan = plan
        self.reads = reads
        self._permit = permit
        self._metrics = metrics
        self._storage_errors = storage_errors
        self._passed_bytes = 0
        self.spliced_bytes = 0
        """Record bytes of the remote tier in the answer, once it was put together."""

    def traced(self, tracer: Tracer | None) -> AbstractContextManager[None]:
        """While the answer is made: the span of a Fetch that may read from the remote tier."""
        if tracer is None or not any(self.plan.sources(Source.REMOTE, Source.ASSUMED)):
            return nullcontext()
        return self._span(tracer)

    @contextmanager
    def _span(self, tracer: Tracer) -> Iterator[None]:
        with tracer.span("Fetch", partitions=len(self.plan.by_key)) as span:
            self.reads.span = span.reference
            yield
            span.set(
                remote_partitions=sum(1 for _ in self.plan.sources(Source.REMOTE)),
                remote_bytes=self.spliced_bytes,
            )

    def _records(self, partition: PartitionFetch) -> RemoteRecords | None:
        outcome = self.reads.outcome(partition)
        if partition.source is not Source.REMOTE or not isinstance(outcome, RemoteRecords):
            return None
        return outcome

    @property
    def remote_bytes(self) -> int:
        """Record bytes of the remote tier that have been read."""
        found = (self._records(partition) for partition in self.plan.sources(Source.REMOTE))
        return sum(records.size_bytes for records in found if records is not None)

    def known_bytes(self, partition: PartitionFetch) -> int | None:
        """What a remote partition takes of max_bytes if it comes first; None = not known yet."""
        outcome = self.reads.outcome(partition)
        if not isinstance(outcome, RemoteRecords):
            return None
        return taken_bytes(outcome, partition.asked.partition_max_bytes)

    def unread(self, response: FetchResponse) -> list[Unread]:
        """By the order asked (KIP-74), and without what is running. Goes through all partitions."""
        found: list[Unread] = []
        if all(map(self.reads.is_begun, self.plan.sources(Source.REMOTE))):
            return found
        room = AnswerRoom(self.plan.request.max_bytes)
        for _, partition, answered in self._in_order(response):
            limit_bytes = room.limit(partition.asked.partition_max_bytes)
            is_unread = partition.source is Source.REMOTE and not self.reads.is_begun(partition)
            records = self._records(partition)
            given_bytes = 0
            if _is_brokers(partition, answered):
                given_bytes = max(answered.records_size, 0)
            elif records is not None:
                given_bytes = taken_bytes(records, limit_bytes)
            elif is_unread and (limit_bytes or room.is_empty):
                found.append(Unread(partition, limit_bytes, replace(room)))
            room.take(given_bytes if room.is_empty else min(given_bytes, limit_bytes))
        return found

    async def pieces(
        self, frame: bytearray, response: FetchResponse, checked: CheckedAnswer, until_ms: int
    ) -> list[Buffer]:
        """Put the answer together within max_bytes, in the order asked (KIP-74).

        `until_ms` bounds all reads together that have to be done again to fit.
        """
        room = AnswerRoom(self.plan.request.max_bytes)
        spliced_bytes = broker_bytes = 0
        replacements: dict[tuple[int, int], Replacement] = {}
        for at, partition, answered in self._in_order(response):
            if _is_brokers(partition, answered):
                altered, given_bytes = _fit_brokers(frame, partition, answered, room)
                broker_bytes += given_bytes
                self._gave(partition, 0, given_bytes)
                self._metrics.answered("fetch", f"broker_{answered.error_code}")
                if altered is not None:
                    replacements[at] = altered
                continue
            try:
                part = self._remote_part(partition, room, until_ms)
                replacements[at], given_bytes = await part
            except asyncio.CancelledError:
                replacements.clear()  # see RemoteReads.cancel
                raise
            spliced_bytes += given_bytes
        self.spliced_bytes = spliced_bytes
        self._permit.gave(spliced_bytes, broker_bytes)
        return splice_fetch_response(
            frame, response, replacements, throttle_time_ms=self._throttle_time_ms(response)
        )

    async def _remote_part(
        self, partition: PartitionFetch, room: AnswerRoom, until_ms: int
    ) -> tuple[SplicedPartition, int]:
        """The answer of a partition that the broker does not answer, and its bytes of records."""
        records, error_code = await self._given(partition, room, until_ms)
        size_bytes = 0 if records is None else records.size_bytes
        if records is not None:
            self._metrics.spliced(size_bytes)
            self._gave(partition, size_bytes, 0)
        self._count(partition, records, error_code)
        read_committed = self.plan.read_committed
        return splice_records(
            partition, records, error_code, read_committed=read_committed
        ), size_bytes

    def _gave(self, partition: PartitionFetch, remote: int, local: int) -> None:
        key, ref = partition.key, partition.ref
        self._counts.read(key[0], ref, key[1], remote, local)

    def _in_order(
        self, response: FetchResponse
    ) -> list[tuple[tuple[int, int], PartitionFetch, FetchedPartition]]:
        """The answered partitions in the order of the request; a broker puts some errors last."""
        order = {key: position for position, key in enumerate(self.plan.by_key)}
        return sorted(answers_of(self.plan, response), key=lambda one: order[one[1].key])

    def _throttle_time_ms(self, response: FetchResponse) -> int | None:
        """The throttle time for the client, None = the broker's."""
        if not self.reads.is_throttled or any(self.plan.sources(Source.BROKER, Source.HOLE)):
            return None
        throttle_ms = self._permit.throttle_time_ms()
        return throttle_ms if throttle_ms > response.throttle_time_ms else None

    def _count(
        self, partition: PartitionFetch, records: RemoteRecords | None, error_code: int
    ) -> None:
        if error_code != NONE:
            outcome = f"error_{error_code}"
        elif partition.source is Source.DIVERGED:
            outcome = "diverged"
        else:
            outcome = "not_ready" if records is None else "remote"
        self._metrics.answered("fetch", outcome)

    async def _given(
        self, partition: PartitionFetch, room: AnswerRoom, until_ms: int
    ) -> tuple[RemoteRecords | None, int]:
        """Records or error code of a partition that the broker does not answer.

        Records without bytes mean that not even the first batch fits. Nothing here refers to what
        does not fit while fewer records are read: see RemoteReads.cancel.
        """
        if partition.source is Source.REFUSED:
            return None, self._error_due(partition, partition.error_code)
        if partition.source is not Source.REMOTE:
            return None, NONE
        outcome = self.reads.outcome(partition)
        if is_lost(outcome):
            code = KAFKA_STORAGE_ERROR if frozen(outcome) else UNKNOWN_SERVER_ERROR
            return None, self._error_due(partition, code)
        limit_bytes = room.limit(partition.asked.partition_max_bytes)
        if limit_bytes == 0 and not room.is_empty:
            return None, NONE
        records = self._records(partition)
        if records is None or not records.size_bytes:
            return None, NONE
        if not self._fits(partition, records, limit_bytes, room.is_empty):
            records = outcome = None
            records = await self._fewer(partition, limit_bytes, room.is_empty, until_ms)
        if records is not None:
            room.take(taken_bytes(records, limit_bytes))
        return records, NONE

    def without_records(self, partition: PartitionFetch) -> SplicedPartition:
        """The answer of a partition that is given no records now: its error, or nothing yet."""
        is_refused = partition.source is Source.REFUSED
        error_code = self._error_due(partition, partition.error_code) if is_refused else NONE
        self._count(partition, None, error_code)
        return splice_records(partition, None, error_code, read_committed=self.plan.read_committed)

    def passes(self, partition: PartitionFetch, answered: FetchedPartition) -> None:
        """Count the broker's own answer of a partition that goes straight to the client."""
        self._metrics.answered("fetch", f"broker_{answered.error_code}")
        given_bytes = max(answered.records_size, 0)
        self._passed_bytes += given_bytes
        self._gave(partition, 0, given_bytes)

    def end_passed(self) -> None:
        """The broker's answer has gone to the client."""
        self._permit.gave(0, self._passed_bytes)

    def _error_due(self, partition: PartitionFetch, error_code: int) -> int:
        if error_code not in (KAFKA_STORAGE_ERROR, UNKNOWN_SERVER_ERROR):
            return error_code
        due = self._storage_errors.is_due(partition.key, self.plan.request.max_wait_ms)
        if due or partition.watermarks is None:
            log.warning(
                "fetch_storage_error",
                topic=str(partition.key[0]),
                partition=partition.key[1],
                code=error_code,
            )
            return error_code
        return NONE

    def _upper_offset(self, partition: PartitionFetch) -> int | None:
        """What the client may have ends there; None = not known."""
        if partition.tiered is None or partition.watermarks is None:
            return None
        return upper_offset(
            partition.tiered, partition.watermarks, read_committed=self.plan.read_committed
        )

    def _fits(
        self, partition: PartitionFetch, records: RemoteRecords, limit_bytes: int, is_first: bool
    ) -> bool:
        """The first records were read with a limit of their own and may be one larger batch."""
        upper = self._upper_offset(partition)
        is_within = is_first or records.size_bytes <= limit_bytes
        return upper is not None and records.next_offset <= upper and is_within

    async def _fewer(
        self, partition: PartitionFetch, limit_bytes: int, is_first: bool, until_ms: int
    ) -> RemoteRecords | None:
        """Records that fit, read again from the cache (H4, KIP-74)."""
        upper = self._upper_offset(partition)
        if upper is None or partition.asked.fetch_offset >= upper:
            return None
        outcome = await self.reads.read_again(partition, limit_bytes, is_first, until_ms)
        return None if outcome is None or outcome.next_offset > upper else outcome


def _fit_brokers(
    frame: bytearray, partition: PartitionFetch, answered: FetchedPartition, room: AnswerRoom
) -> tuple[Replacement | None, int]:
    """How the broker's own answer is altered, and how many bytes of its records are given."""
    if answered.error_code != NONE:
        return None, 0
    if answered.records_size <= 0:
        return patch_clean(partition, answered, answered.records_size), 0
    end = answered.records_position + answered.records_size
    first_bytes = first_batch_bytes(memoryview(frame)[answered.records_position : end])
    max_bytes = partition.asked.partition_max_bytes
    given_bytes = room.allowed(max_bytes, answered.records_size, first_bytes)
    is_cut_to_nothing = given_bytes == 0 and room.limit(max_bytes) > 0
    room.take(given_bytes)
    if is_cut_to_nothing:
        return empty_clean(partition, answered), 0
    return patch_clean(partition, answered, given_bytes), given_bytes


def _is_brokers(partition: PartitionFetch, answered: FetchedPartition) -> bool:
    """Whether the broker's own answer is passed on: for its own sources, and for every error but
    OFFSET_OUT_OF_RANGE.
    """
    if partition.source in (Source.BROKER, Source.HOLE):
        return True
    return answered.error_code not in (NONE, OFFSET_OUT_OF_RANGE)
