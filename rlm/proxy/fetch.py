"""Answers one Fetch: asks the broker for the client, reads from the remote tier, waits, answers.

The order of the waits keeps long polling and catch-up speed together with H17, H20 and H25. The
decisions are in `splice`. This module must not know sockets.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from kafka_protocol.apis import FETCH
from kafka_protocol.error_codes import FETCH_SESSION_ID_NOT_FOUND, NONE, OFFSET_OUT_OF_RANGE
from kafka_protocol.fetch import (
    FetchedPartition,
    FetchRequests,
    FetchResponse,
    patch_fetch_request,
    scan_fetch_response,
)
from kafka_protocol.frames import encode_response, frame_length
from kafka_protocol.node_addresses import (
    FIRST_FETCH_WITH_ENDPOINTS,
    AddressLookup,
    rewrite_node_endpoints,
)
from kafka_protocol.primitives import Buffer
from rlm.clock import Clock
from rlm.proxy.begun import in_task
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.fetch_answer import FetchAnswer, StorageErrors
from rlm.proxy.fetch_plan import (
    HighWatermarks,
    Key,
    PartitionFetch,
    ReadableTopics,
    Source,
    is_consumer,
    is_incremental,
    plan_fetch,
    within_bound,
)
from rlm.proxy.further_reads import FurtherReads, Turns
from rlm.proxy.passing import PassedFetch
from rlm.proxy.purgatory import GRACE_MS, RemoteFetchPurgatory
from rlm.proxy.reads import (
    READ_FIRST_MS,
    STREAMED,
    WHOLE,
    FetchQuota,
    FetchUpstream,
    Permit,
    RemoteReads,
)
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.proxy.settling import BarrierLimit, Settling
from rlm.proxy.splice import (
    CheckedAnswer,
    answers_of,
    check_answer,
    drop,
    not_ready,
)
from rlm.remote_log.tier import Tier
from rlm.remote_log.visible import ClientView
from rlm.spans import Tracer

_SLICE_MS = 100  # part of max_wait per request; new tail records end the wait at once
_MOST_REPEATS = 8  # of requests repeated because an answer changed what has to be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchDependencies:
    """What fetches work with; all connections share `high_watermarks`, `quota`, `purgatory` and
    `barrier_limit`. `node_addresses`: of the nodes that an answer names. `others_wait`: whether
    other requests wait for the memory that those in work hold.
    """

    settings: ProxySettings
    clock: Clock
    metrics: ProxyMetrics
    high_watermarks: HighWatermarks
    quota: FetchQuota
    purgatory: RemoteFetchPurgatory
    barrier_limit: BarrierLimit
    node_addresses: AddressLookup
    others_wait: Callable[[], bool]
    tracer: Tracer | None = None


class FetchHandler:
    """Answers the Fetch requests of one connection; `view`: the tier as its client sees it."""

    def __init__(
        self, dependencies: FetchDependencies, view: ClientView, counts: ClientCounts
    ) -> None:
        self._dependencies = dependencies
        self._view, self._counts = view, counts
        self._storage_errors = StorageErrors(dependencies.clock)
        self._quota = dependencies.quota.connection()
        self._unanswered: set[Key] = set()
        self._turns = Turns()
        self._readable = ReadableTopics()
        self._requests = FetchRequests()
        self.session_left_ms: Callable[[], float] = lambda: math.inf
        """How long the broker answers more requests of this connection (KIP-368)."""

    def known_as(self, principal: str) -> None:
        """See `rlm.proxy.reads.ConnectionQuota`."""
        self._quota.known_as(principal)

    async def handle(self, taken: Taken, upstream: FetchUpstream) -> list[Buffer] | None:
        """The answer as pieces with its length; None when the broker's answer went straight to the
        client.
        """
        client_id, request = self._requests.scan(taken.frame)
        request = within_bound(request, self._dependencies.others_wait)
        if not is_consumer(request):
            frame = patch_fetch_request(
                taken.frame,
                request,
                sessionless=False,
                max_wait_ms=request.max_wait_ms,
                replacements={},
            )
            await upstream.ask(frame, taken.api_version, taken.correlation_id, STREAMED)
            return None
        if is_incremental(request):
            await upstream.settled()
            body = {"error_code": FETCH_SESSION_ID_NOT_FOUND}
            return [encode_response(FETCH, taken.api_version, taken.correlation_id, body)]
        tier = self._view.tier(client_id)
        self._counts.named(client_id)
        plan = plan_fetch(
            request,
            tier.partition,
            tier.epoch_end,
            ready=tier.ready(),
            high_watermarks=self._dependencies.high_watermarks,
        )
        clock = self._dependencies.clock
        began_ms, left_ms = clock.monotonic_ms(), self.session_left_ms()
        deadline_ms = began_ms + int(min(max(request.max_wait_ms, 0), left_ms))
        settling = self._settling(tier, deadline_ms, began_ms, left_ms)
        permit = Permit(self._quota, client_id or "", clock, self._counts.throttled)
        reads = RemoteReads(
            tier,
            permit,
            self._dependencies.purgatory,
            clock,
            read_committed=plan.read_committed,
            deadline_ms=deadline_ms,
        )
        answer = FetchAnswer(
            plan, reads, permit, self._dependencies.metrics, self._storage_errors, self._counts
        )
        further = FurtherReads(reads, permit, self._turns, clock)
        known = self._unanswered, self._readable
        one = _OneFetch(
            self._dependencies, settling, taken, upstream, answer, further, deadline_ms, *known
        )
        with answer.traced(self._dependencies.tracer):
            try:
                if await one.answer_at_once():
                    return one.pieces
                await in_task()
                async with asyncio.TaskGroup() as group:
                    try:
                        return await one.settle(group)
                    finally:
                        reads.cancel()
            finally:
                reads.cancel()

    def _settling(self, tier: Tier, deadline_ms: int, began_ms: int, left_ms: float) -> Settling:
        known = self._dependencies
        limit = known.barrier_limit
        until_ms = began_ms + int(min(limit.wait_ms(), left_ms))
        times = {"deadline_ms": deadline_ms, "until_ms": until_ms}
        return Settling(tier, known.clock, known.metrics, limit, **times)


class _OneFetch:
    """One Fetch from its plan to its answer."""

    def __init__(
        self,
        dependencies: FetchDependencies,
        settling: Settling,
        taken: Taken,
        upstream: FetchUpstream,
        answer: FetchAnswer,
        further: FurtherReads,
        deadline_ms: int,
        unanswered: set[Key],
        readable: ReadableTopics,
    ) -> None:
        self._clock = dependencies.clock
        self._settling = settling
        self._high_watermarks = dependencies.high_watermarks
        self._node_addresses = dependencies.node_addresses
        self._taken = taken
        self._upstream = upstream
        self._answer = answer
        self._plan, self._reads, self._further = answer.plan, answer.reads, further
        self._deadline_ms = deadline_ms
        self._unanswered, self._readable = unanswered, readable
        self._must_ask_first = False
        self._frame = bytearray()
        self._is_held = False
        self._answered: tuple[FetchResponse, CheckedAnswer] | None = None
        self.pieces: list[Buffer] | None = None
        """The answer; None: the broker's answer went straight to the client."""
        self._reads_begun_ms = self._slice_end_ms = self._clock.monotonic_ms()

    def _left_ms(self) -> int:
        return self._deadline_ms - self._clock.monotonic_ms()

    def _until_ms(self) -> int:
        """When the answer is sent, whatever is still read for it."""
        return max(self._deadline_ms, self._clock.monotonic_ms() + GRACE_MS)

    @property
    def _is_ours_to_hold(self) -> bool:
        """Whether there is anything to wait for that the broker does not wait for by itself."""
        return any(self._plan.sources(Source.REMOTE, Source.NOT_READY, Source.REFUSED))

    def _is_enough(self, checked: CheckedAnswer) -> bool:
        """Whether the answer has enough bytes, the time is over, or the tier has nothing more to
        give.
        """
        remote_bytes = self._answer.remote_bytes
        return (
            checked.broker_bytes + remote_bytes >= max(self._plan.request.min_bytes, 0)
            or self._left_ms() <= 0
            or (remote_bytes > 0 and not self._reads.is_pending)
        )

    async def answer_at_once(self) -> bool:
        """Ask the broker once, without a task. False: something must be waited for, or asked again,
        and `settle` goes on from here.
        """
        self._start_planned_reads(Source.ASSUMED)
        self._is_held = any(self._plan.sources(Source.ASSUMED))
        if self._plan.is_contended or self._reads.is_pending:
            return False
        self._drop_ended()
        if await self._ask(self._first_wait_ms) is None:
            return True
        assert self._answered is not None  # noqa: S101 - `_ask` has set it
        response, checked = self._answered
        if checked.is_unsettled or self._must_wait(response, checked):
            return False
        if self._further.begin(self._answer.unread(response)):
            self._reads_begun_ms = self._clock.monotonic_ms()
            if self._further.goes_on():
                return False
        if self._reads.has_gaps:
            return False
        await self._answer_with(response, checked)
        return True

    async def settle(self, group: asyncio.TaskGroup) -> list[Buffer] | None:
        """Ask the broker, settle every partition, wait for bytes, and return the answer as pieces.
        None: the broker's answer went straight to the client.
        """
        self._reads.wait_in(group)
        if self._answered is None and self._plan.is_contended:
            if self._must_ask_first and await self._ask(0) is None:
                return self.pieces
            self._answered = None  # it has shown what may be read: the next one shares the room
            await self._wait_for_new_reads()
        wait_ms, repeats = self._first_wait_ms, 0
        while True:
            if self._answered is None:
                self._drop_ended()
                await self._pass_gaps(group)
                if await self._ask(wait_ms) is None:
                    return self.pieces
            assert self._answered is not None  # noqa: S101 - `_ask` has set it
            (response, checked), self._answered = self._answered, None
            asked_again = await self._settle_partitions(group, checked) + checked.dropped
            if asked_again and repeats < _MOST_REPEATS:
                wait_ms, repeats = 0, repeats + 1
                continue
            for partition in asked_again:
                not_ready(partition, partition.watermarks)
            if await self._hold(response, checked):
                await self._further.read(self._answer.unread(response), self._until_ms())
                if not self._reads.has_gaps:
                    return await self._answer_with(response, checked)
            slice_ms = _SLICE_MS if self._is_ours_to_hold else self._left_ms()
            wait_ms = max(1, min(slice_ms, self._left_ms()))
            self._reads.begin_put_off()

    async def _answer_with(
        self, response: FetchResponse, checked: CheckedAnswer
    ) -> list[Buffer] | None:
        answered = self._plan.sources(Source.BROKER)
        self._unanswered.difference_update(partition.key for partition in answered)
        until_ms = self._until_ms()
        self.pieces = await self._answer.pieces(self._frame, response, checked, until_ms)
        return self.pieces

    @property
    def _first_wait_ms(self) -> int:
        return 0 if self._is_held else max(self._plan.request.max_wait_ms, 0)

    def _drop_ended(self) -> None:
        """Let the broker answer for offsets that have ended, and a barrier settle its answer."""
        for partition in self._reads.ended():
            drop(partition)
            self._reads.forget(partition)

    async def _pass_gaps(self, group: asyncio.TaskGroup) -> None:
        """Let the broker answer behind remote data that end without records (H15)."""
        gaps = self._reads.take_gaps()
        for one in [group.create_task(self._settling.gap(*gap)) for gap in gaps]:
            await one

    async def _ask(self, wait_ms: int) -> CheckedAnswer | None:
        """Ask the broker, and check its answer. None: that is the answer, as `pieces` has it."""
        self._slice_end_ms = self._clock.monotonic_ms() + min(wait_ms, _SLICE_MS)
        frame = patch_fetch_request(
            self._taken.frame,
            self._plan.request,
            sessionless=True,
            max_wait_ms=wait_ms,
            replacements=self._plan.replacements(),
            max_bytes=self._plan.broker_max_bytes(self._answer.known_bytes),
            leader_epochs=self._plan.leader_epochs(),
            hide_rack=self._plan.hides_rack,
        )
        api_version, correlation_id = self._taken.api_version, self._taken.correlation_id
        self._frame = bytearray()  # the next answer may wait for the memory of this one
        # Any answer may hide an OFFSET_OUT_OF_RANGE (H17).
        if self._plan.is_brokers and self._unanswered.isdisjoint(self._plan.by_key):
            passed = PassedFetch(
                self._answer,
                self._high_watermarks,
                self._begin_settling,
                self._unanswered,
                rewrites=self._node_addresses() is not None,
            )
            answer = await self._upstream.ask_fetch(frame, api_version, correlation_id, passed)
            if answer is None:
                self._answer.end_passed()
        else:
            answer = await self._upstream.ask(frame, api_version, correlation_id, WHOLE)
        if answer is None:
            return None
        self._frame = answer
        response = scan_fetch_response(answer, self._taken.api_version)
        nodes = self._node_addresses()
        if nodes is not None and response.api_version >= FIRST_FETCH_WITH_ENDPOINTS:
            self._frame = rewrite_node_endpoints(answer, response.tags_position, nodes)
        if response.error_code != NONE or not response.topics:
            self.pieces = [frame_length(len(self._frame)), self._frame]
            return None
        checked = check_answer(self._plan, response, self._high_watermarks)
        for partition in checked.dropped:
            self._reads.forget(partition)
        if self._must_ask_first or checked.leave_now:
            for _, partition, answered in answers_of(self._plan, response):
                self._readable.heed(partition, answered.error_code)
        if self._must_ask_first:
            self._start_planned_reads(Source.REMOTE)
        self._answered = response, checked
        return checked

    def _begin_settling(self, passed: PassedFetch, partition: PartitionFetch) -> None:
        self._upstream.beside(self._settle_passed(passed, partition))

    async def _settle_passed(self, passed: PassedFetch, partition: PartitionFetch) -> None:
        """Settle an OFFSET_OUT_OF_RANGE at which an answer on its way to the client has stopped."""
        if self._settling.has_waited:
            await self._settling.leave_open(partition)
        else:
            async with asyncio.TaskGroup() as group:
                again = await self._settling.out_of_range(group, partition)
            if again:  # the broker cannot be asked in between
                not_ready(partition, partition.watermarks)
        passed.settled(partition)
        self._upstream.go_on()

    def _start_planned_reads(self, source: Source) -> None:
        """Of a topic that the broker has not answered yet, its answer comes first (G8)."""
        planned_bytes = 0
        self._must_ask_first = False
        for number, partition in enumerate(self._plan.sources(source)):
            if number and planned_bytes >= self._plan.request.max_bytes:
                return  # nothing more could be answered
            if not self._readable.has(partition):
                self._must_ask_first = True
                continue
            planned_bytes += self._reads.start(partition, self._plan.request.max_bytes)
            self._reads_begun_ms = self._clock.monotonic_ms()

    async def _settle_partitions(
        self, group: asyncio.TaskGroup, checked: CheckedAnswer
    ) -> tuple[PartitionFetch, ...]:
        """Settle every OFFSET_OUT_OF_RANGE and every doubtful answer. Returns the partitions for
        which the broker must be asked again.
        """
        verdicts = [
            (partition, group.create_task(self._settling.out_of_range(group, partition)))
            for partition in checked.out_of_range
        ]
        doubts = [group.create_task(self._settling.doubted(one)) for one in checked.doubted]
        again = tuple([partition for partition, verdict in verdicts if await verdict])
        for doubt in doubts:
            await doubt
        for partition in (*checked.became_remote, *checked.out_of_range):
            if partition.source is Source.REMOTE:
                self._reads.start(partition, self._plan.request.max_bytes)
                self._reads_begun_ms = self._clock.monotonic_ms()
        return again

    def _must_wait(self, response: FetchResponse, checked: CheckedAnswer) -> bool:
        """Whether the answer may gain from a wait beyond the broker's own."""
        if self._reads.is_pending:
            return True  # it has begun since that answer, and has a first moment in any case
        if checked.leave_now or self._plan.is_plain or self._has_final_error(response):
            return False
        if not self._is_ours_to_hold and not any(self._plan.sources(Source.HOLE)):
            return False  # the broker itself held the request for max_wait
        return not self._is_enough(checked)

    async def _hold(self, response: FetchResponse, checked: CheckedAnswer) -> bool:
        """Wait for bytes. True: the answer can be sent. False: the broker must be asked again
        first. A broker that did not hold the request, for the sake of a partition that is asked at
        its high watermark, is asked again when it could have held it, and not at once (H20).
        """
        if checked.leave_now or self._plan.is_plain or self._has_final_error(response):
            await self._grace()
            await self._wait_for_new_reads()
            return True
        if not self._is_ours_to_hold and not any(self._plan.sources(Source.HOLE)):
            return True  # the broker itself held the request for max_wait
        first_wait = True
        while not self._is_enough(checked):
            if self._reads.has_gaps or self._reads.ended():
                return False
            left_ms = self._left_ms()
            can_ask_again = self._plan.can_ask_again
            if can_ask_again and not (first_wait and self._reads.is_pending):
                rest_ms = self._slice_end_ms - self._clock.monotonic_ms()
                if rest_ms <= 0 or checked.is_unsettled:
                    return False
                await self._reads.wait(rest_ms)
                continue
            first_wait = False
            if self._reads.is_pending:
                bound_ms = min(left_ms, READ_FIRST_MS) if can_ask_again else left_ms
                await self._reads.wait(bound_ms)
            else:
                await self._reads.wait(min(left_ms, _SLICE_MS))
                self._reads.begin_put_off()
        if checked.broker_bytes:
            await self._grace()
        await self._wait_for_new_reads()
        return True

    def _has_final_error(self, response: FetchResponse) -> bool:
        return any(
            partition.ends_wait or (partition.source is Source.BROKER and _ends_wait(answered))
            for _, partition, answered in answers_of(self._plan, response)
        )

    async def _wait_for_new_reads(self) -> None:
        """Give reads that have just begun a first moment, even after max_wait; otherwise short
        waits would never get any records.
        """
        while self._reads.is_pending:
            left_ms = self._reads_begun_ms + READ_FIRST_MS - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            await self._reads.wait(left_ms)

    async def _grace(self) -> None:
        """Wait briefly for a read that is nearly finished: partitions with new records must not
        starve old ones.
        """
        bound_ms = min(GRACE_MS, self._plan.request.max_wait_ms // 10)
        if self._reads.is_pending and bound_ms > 0 and not self._answer.remote_bytes:
            await self._reads.wait(bound_ms)


def _ends_wait(answered: FetchedPartition) -> bool:
    """Whether the broker itself answered at once, and its answer is passed on."""
    return answered.error_code == OFFSET_OUT_OF_RANGE or answered.diverging_epoch is not None
