"""Settles one Fetch: asks the broker in the client's name, reads from the tier, holds, answers.

Why: the order of waiting is what keeps long polling, catch-up speed and H17, H20, H25 together;
the decisions themselves are in `splice`. It must not know sockets.
"""

import asyncio

import structlog

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.proxy.codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from rlm.proxy.reads import RemoteReads, frozen, guarded, is_lost, watermarks_or_none
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.proxy.splice import (
    FetchPlan,
    Judged,
    Key,
    Place,
    Replacement,
    Source,
    answers_of,
    is_consumer,
    is_incremental,
    judge_answer,
    judge_out_of_range,
    not_ready,
    patch_clean,
    plan_fetch,
    refuse_follower,
    refuse_storage,
    splice_records,
    upper_offset,
)
from rlm.proxy.tier import RemoteRecords, Tier
from rlm.proxy.upstream import STREAMED, WHOLE, Upstream
from rlm.wire.apis import FETCH
from rlm.wire.fetch import (
    FetchedPartition,
    FetchResponse,
    patch_fetch_request,
    scan_fetch_request,
    scan_fetch_response,
    splice_fetch_response,
)
from rlm.wire.frames import encode_response, frame_length, parse_request_header
from rlm.wire.primitives import Buffer

log = structlog.get_logger(__name__)

_READ_FIRST_MS = 30  # most reads are through by then: only after that the broker is asked again
_SLICE_MS = 100  # of the client's max_wait per question: new tail records end the wait at once
_GRACE_MS = 50  # for a read that is nearly there when the broker has records already
_LEAST_BARRIER_MS = 100  # also for clients with a max_wait of 0
_MOST_ROUNDS = 8  # of questions asked again because an answer changed what must be asked
_MOST_REMEMBERED = 200_000
_FIRST_WITH_ZSTD = 10


class HighWatermarks(dict[Key, int]):
    """Last high watermark seen per tiered partition, by all connections; forgets all when full."""

    def __setitem__(self, key: Key, high_watermark: int) -> None:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        super().__setitem__(key, high_watermark)


class FetchHandler:
    """Answers the Fetch requests of one connection."""

    def __init__(
        self,
        settings: ProxySettings,
        tier: Tier,
        clock: Clock,
        metrics: ProxyMetrics,
        high_watermarks: HighWatermarks,
    ) -> None:
        self._settings = settings
        self._tier = tier
        self._clock = clock
        self._metrics = metrics
        self._high_watermarks = high_watermarks
        self._storage_errors: dict[Key, int] = {}

    async def handle(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The answer as pieces with its length; None when it went straight to the client."""
        header = parse_request_header(taken.frame)
        request = scan_fetch_request(taken.frame, header)
        if not is_consumer(request):
            await upstream.ask(taken.frame, taken.api_version, taken.correlation_id, STREAMED)
            return None
        if is_incremental(request):
            await upstream.settled()
            body = {"error_code": FETCH_SESSION_ID_NOT_FOUND}
            return [encode_response(FETCH, taken.api_version, taken.correlation_id, body)]
        plan = plan_fetch(
            request,
            self._tier.partition,
            ready=self._tier.ready(),
            high_watermarks=self._high_watermarks,
        )
        async with asyncio.TaskGroup() as group:
            reads = RemoteReads(group, self._tier, read_committed=plan.read_committed)
            one = _OneFetch(self, taken, plan, upstream, reads, group)
            try:
                return await one.settle()
            finally:
                reads.cancel()

    def reports_storage_error(self, key: Key, max_wait_ms: int) -> bool:
        """Whether 56 is due: once per max_wait, so that client logs show it (H25)."""
        now_ms = self._clock.monotonic_ms()
        last_ms = self._storage_errors.get(key)
        if last_ms is not None and now_ms - last_ms < max_wait_ms:
            return False
        if len(self._storage_errors) >= _MOST_REMEMBERED:
            self._storage_errors.clear()
        self._storage_errors[key] = now_ms
        return True

    @property
    def parts(self) -> tuple[ProxySettings, Tier, Clock, ProxyMetrics, HighWatermarks]:
        """What one fetch works with."""
        return self._settings, self._tier, self._clock, self._metrics, self._high_watermarks


class _OneFetch:
    """One Fetch from its plan to its answer."""

    def __init__(
        self,
        handler: FetchHandler,
        taken: Taken,
        plan: FetchPlan,
        upstream: Upstream,
        reads: RemoteReads,
        group: asyncio.TaskGroup,
    ) -> None:
        self._handler = handler
        self._taken = taken
        self._plan = plan
        self._upstream = upstream
        self._reads = reads
        self._group = group
        settings, self._tier, self._clock, self._metrics, self._high_watermarks = handler.parts
        self._whole_answer_bytes = settings.whole_answer_bytes
        self._deadline_ms = self._clock.monotonic_ms() + max(plan.request.max_wait_ms, 0)
        self._frame = bytearray()

    def _left_ms(self) -> int:
        return self._deadline_ms - self._clock.monotonic_ms()

    async def settle(self) -> list[Buffer] | None:
        """Ask, settle, hold, answer."""
        planned_bytes = 0
        for place in self._plan.sources(Source.ASSUMED):
            if planned_bytes < self._plan.request.max_bytes:  # no more could be answered
                planned_bytes += self._start_read(place)
        is_held = any(self._plan.sources(Source.ASSUMED))
        wait_ms = 0 if is_held else max(self._plan.request.max_wait_ms, 0)
        rounds = 0
        while True:
            response = await self._ask(wait_ms)
            if response is None:
                return None
            if response.error_code != NONE or not response.topics:
                return [frame_length(len(self._frame)), self._frame]
            judged = judge_answer(self._plan, response, self._high_watermarks)
            asked_again = await self._settle_places(judged) + judged.dropped
            if asked_again and rounds < _MOST_ROUNDS:
                wait_ms, rounds = 0, rounds + 1
                continue
            for place in asked_again:
                not_ready(place, place.marks)
            if await self._hold(response, judged):
                return await self._answer(response, judged)
            wait_ms = max(1, min(_SLICE_MS, self._left_ms()))
            self._reads.retry()

    async def _ask(self, wait_ms: int) -> FetchResponse | None:
        frame = patch_fetch_request(
            self._taken.frame,
            self._plan.request,
            sessionless=True,
            max_wait_ms=wait_ms,
            replacements=self._plan.replacements(),
            max_bytes=self._plan.broker_max_bytes(),
        )
        answer = await self._upstream.ask(
            frame,
            self._taken.api_version,
            self._taken.correlation_id,
            self._whole_answer_bytes if self._plan.is_plain else WHOLE,
        )
        if answer is None:
            return None
        self._frame = answer
        return scan_fetch_response(answer, self._taken.api_version)

    def _start_read(self, place: Place) -> int:
        size_bytes = min(place.asked.partition_max_bytes, self._plan.request.max_bytes)
        self._reads.start(place, size_bytes)
        return size_bytes

    async def _settle_places(self, judged: Judged) -> tuple[Place, ...]:
        """Find out about every OFFSET_OUT_OF_RANGE; answers what the broker is asked again for."""
        verdicts = [
            (place, self._group.create_task(self._out_of_range(place)))
            for place in judged.out_of_range
        ]
        again = tuple([place for place, verdict in verdicts if await verdict])
        for place in (*judged.became_remote, *judged.out_of_range):
            if place.source is Source.REMOTE:
                self._start_read(place)
        return again

    async def _out_of_range(self, place: Place) -> bool:
        if place.tiered is not None and not place.tiered.led_here:
            refuse_follower(place)
            return False
        bound_ms = max(self._left_ms(), _LEAST_BARRIER_MS)
        index = place.asked.index
        asking = self._group.create_task(watermarks_or_none(self._tier, place.ref, index, bound_ms))
        began_ms = self._clock.monotonic_ms()
        view = await guarded(self._tier.barrier(place.ref, index, bound_ms))
        passed = not isinstance(view, RemoteStorageError)
        self._metrics.barrier_waited(self._clock.monotonic_ms() - began_ms, passed=passed)
        if view is None:
            asking.cancel()
            return judge_out_of_range(place, None, None)
        marks = await asking
        if frozen(view):
            refuse_storage(place, marks)
        elif isinstance(view, RemoteStorageError):
            not_ready(place, marks)
        else:
            return judge_out_of_range(place, view, marks)
        return False

    async def _hold(self, response: FetchResponse, judged: Judged) -> bool:
        """Wait for bytes; True when the answer is to leave, False when to ask once more."""
        if judged.leave_now or self._plan.is_plain or self._has_final_error(response):
            await self._grace()
            return True
        least_bytes = max(self._plan.request.min_bytes, 0)
        first_wait = True
        while True:
            size_bytes = judged.broker_bytes + self._remote_bytes()
            left_ms = self._left_ms()
            if size_bytes >= least_bytes or left_ms <= 0:
                if size_bytes:
                    await self._grace()
                return True
            can_ask_again = self._plan.can_ask_again
            if not any(self._plan.sources(Source.REMOTE, Source.NOT_READY, Source.REFUSED)):
                return True  # the broker itself held it for max_wait
            if can_ask_again and not (first_wait and self._reads.is_pending):
                return False
            first_wait = False
            if self._reads.is_pending:
                bound_ms = min(left_ms, _READ_FIRST_MS) if can_ask_again else left_ms
                await self._reads.wait(bound_ms)
            else:
                await self._clock.sleep_ms(min(left_ms, _SLICE_MS))
                self._reads.retry()

    def _has_final_error(self, response: FetchResponse) -> bool:
        return any(
            place.ends_wait
            or (answered.error_code == OFFSET_OUT_OF_RANGE and place.source is Source.BROKER)
            or self._zstd_refused(place)
            for place, answered in answers_of(self._plan, response)
        )

    async def _grace(self) -> None:
        """A read that is nearly there: partitions with new records must not starve old ones."""
        bound_ms = min(_GRACE_MS, self._plan.request.max_wait_ms // 10)
        if self._reads.is_pending and bound_ms > 0 and not self._remote_bytes():
            await self._reads.wait(bound_ms)

    def _records(self, place: Place) -> RemoteRecords | None:
        outcome = self._reads.outcome(place)
        if place.source is not Source.REMOTE or not isinstance(outcome, RemoteRecords):
            return None
        return outcome

    def _remote_bytes(self) -> int:
        found = (self._records(place) for place in self._plan.sources(Source.REMOTE))
        return sum(records.size_bytes for records in found if records is not None)

    def _zstd_refused(self, place: Place) -> bool:
        records = self._records(place)
        old = self._taken.api_version < _FIRST_WITH_ZSTD
        return old and records is not None and records.has_zstd

    async def _answer(self, response: FetchResponse, judged: Judged) -> list[Buffer]:
        """Put the answer together within max_bytes, in the order the broker answered (KIP-74)."""
        left_bytes = self._plan.request.max_bytes - judged.broker_bytes
        is_first = True
        replacements: dict[tuple[int, int], Replacement] = {}
        for at, place, answered in _located(self._plan, response):
            replacement: Replacement | None
            if _is_brokers(place, answered):
                replacement = patch_clean(place, answered) if answered.error_code == NONE else None
                is_first = is_first and answered.records_size <= 0
                self._metrics.answered("fetch", f"broker_{answered.error_code}")
            else:
                records, error_code = await self._given(place, left_bytes, is_first)
                if records is not None:
                    left_bytes -= records.size_bytes
                    is_first = is_first and not records.size_bytes
                    self._metrics.spliced(records.size_bytes)
                self._count(records, error_code)
                replacement = splice_records(
                    place, records, error_code, read_committed=self._plan.read_committed
                )
            if replacement is not None:
                replacements[at] = replacement
        return splice_fetch_response(self._frame, response, replacements)

    def _count(self, records: RemoteRecords | None, error_code: int) -> None:
        if error_code != NONE:
            outcome = f"error_{error_code}"
        else:
            outcome = "not_ready" if records is None else "remote"
        self._metrics.answered("fetch", outcome)

    async def _given(
        self, place: Place, left_bytes: int, is_first: bool
    ) -> tuple[RemoteRecords | None, int]:
        """Records or error code of a partition that is not the broker's to answer."""
        if place.source is Source.REFUSED:
            return None, self._error_due(place, place.error_code)
        if place.source is not Source.REMOTE:
            return None, NONE
        if is_lost(self._reads.outcome(place)):
            return None, self._error_due(place, KAFKA_STORAGE_ERROR)
        if self._zstd_refused(place):
            return None, UNSUPPORTED_COMPRESSION_TYPE
        records = self._records(place)
        if records is None or (left_bytes <= 0 and not is_first):
            return None, NONE
        return await self._fitting(place, records, left_bytes, is_first), NONE

    def _error_due(self, place: Place, error_code: int) -> int:
        if error_code != KAFKA_STORAGE_ERROR:
            return error_code
        due = self._handler.reports_storage_error(place.key, self._plan.request.max_wait_ms)
        if due or place.marks is None:
            log.warning("fetch_storage_error", topic=str(place.key[0]), partition=place.key[1])
            return error_code
        return NONE

    async def _fitting(
        self, place: Place, records: RemoteRecords, left_bytes: int, is_first: bool
    ) -> RemoteRecords | None:
        """The records if they fit, else less of them, read again from the cache (H4, KIP-74)."""
        if place.tiered is None or place.marks is None:
            return None
        upper = upper_offset(place.tiered, place.marks, read_committed=self._plan.read_committed)
        if records.next_offset <= upper and records.size_bytes <= left_bytes:
            return records
        if place.asked.fetch_offset >= upper:
            return None
        size_bytes = max(1, min(place.asked.partition_max_bytes, left_bytes))
        try:
            async with asyncio.timeout(max(self._left_ms(), _GRACE_MS) / 1000):
                outcome = await self._reads.read(place, size_bytes, is_first)
        except TimeoutError:
            return None
        if not isinstance(outcome, RemoteRecords) or outcome.next_offset > upper:
            return None
        return outcome


def _is_brokers(place: Place, answered: FetchedPartition) -> bool:
    """Whether the broker's own answer stands: its sources, and every error but the one we own."""
    if place.source in (Source.BROKER, Source.HOLE):
        return True
    return answered.error_code not in (NONE, OFFSET_OUT_OF_RANGE)


def _located(
    plan: FetchPlan, response: FetchResponse
) -> list[tuple[tuple[int, int], Place, FetchedPartition]]:
    """Partitions of the answer with their place in it."""
    found = []
    for topic_at, topic in enumerate(response.topics):
        name = topic.topic_id if topic.topic_id is not None else topic.name or ""
        for partition_at, answered in enumerate(topic.partitions):
            place = plan.by_key.get((name, answered.index))
            if place is not None:
                found.append(((topic_at, partition_at), place, answered))
    return found
