"""The tier in a worker: its own mirror of the core's views, and calls of the core over a socket.

Without the core nothing is ready: a call fails with Unavailable at once, bytes pass, and partitions
of which anything is remote are "not ready" until the core is back (H17, H24). So does a call while
the core takes nothing, as one that was stopped, and much waits for it already (H36). A call whose
caller does not wait any more is cancelled in the core too, which completes a load for its cache.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import structlog

from kafka_protocol.node_addresses import NodeAddresses
from kip405.errors import Unavailable
from kip405.ids import Uuid
from kip405.process import software_version
from rlm.clock import Clock, backoff_ms
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.mirrored import MirroredPartition
from rlm.remote_log.tier import EpochEnd, TierPartition, TopicRef, Watermarks
from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.messages import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    common_protocol,
    error_of,
    marks_of,
    read_message,
    records_of,
    timestamp_of,
    topic_message,
    view_message,
    view_of,
)
from rlm.workers.mirror import TierMirror
from rlm.workers.records_memory import RecordsMemory
from rlm.workers.socket_paths import socket_address
from rlm.workers.v1 import core_pb2 as pb

log = structlog.get_logger(__name__)
_MOST_BACKOFF_MS = 500
_TOKEN_MS = 15_000
_Answer = tuple[pb.ToWorker, RawBytes]


class RemoteCore:
    """Implements Tier and Deletions of rlm/remote_log/tier.py. `greeted` is called with each Hello
    of a core, and `waited` with the waits that it answers.
    """

    def __init__(
        self,
        path: Path,
        *,
        worker: int,
        recent_ends: int,
        clock: Clock,
        memory: RecordsMemory,
        greeted: Callable[[pb.CoreHello], None],
        waited: Callable[[pb.ClientWaits], None],
        addresses: NodeAddresses | None = None,
    ) -> None:
        """`addresses` of nodes, until the core has sent newer ones; None = none are replaced."""
        self._path = path
        self._worker = worker
        self._recent_ends = recent_ends
        self._clock = clock
        self._memory = memory
        self._greeted = greeted
        self._waited = waited
        self._mirror = TierMirror(addresses)
        self._link: FrameLink | None = None
        self._has_greeted = False
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[_Answer]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the core has answered."""
        return self._link is not None and self._link.is_open and self._has_greeted

    @property
    def takes_reports(self) -> bool:
        """Whether what is sent to the core now does not wait behind much else."""
        return self._link is not None and self.is_connected and not self._link.is_full

    async def run(self) -> None:
        """Connect, and again whenever the connection has ended, until cancelled."""
        failures = 0
        while True:
            over = asyncio.Event()
            try:
                link = await self._connect(over)
            except OSError:
                failures += 1
            else:
                failures = 0 if await self._connected(link, over) else failures + 1
            await self._clock.sleep_ms(min(_MOST_BACKOFF_MS, backoff_ms(failures, first_ms=20)))

    async def _connect(self, over: asyncio.Event) -> FrameLink:
        loop = asyncio.get_running_loop()
        with socket_address(self._path) as address:
            _, link = await loop.create_unix_connection(
                lambda: FrameLink(self._received, over.set, self._memory.take), address
            )
        return link

    async def _connected(self, link: FrameLink, over: asyncio.Event) -> bool:
        """Until the connection ends; whether the core had answered."""
        self._link = link
        hello = pb.WorkerHello(
            oldest_protocol=OLDEST_PROTOCOL,
            newest_protocol=NEWEST_PROTOCOL,
            software_version=software_version(),
            worker=self._worker,
            recent_ends=self._recent_ends,
        )
        link.send(pb.ToCore(hello=hello).SerializeToString())
        try:
            await over.wait()
        finally:
            had_greeted, self._has_greeted = self._has_greeted, False
            self._link = None
            self._mirror.ready = False
            link.close()
            self._fail_calls()
            log.warning("core_lost", worker=self._worker, problem=link.problem)
        return had_greeted

    def _fail_calls(self) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(Unavailable("the connection to the core process has ended"))
        self._calls.clear()

    def _received(self, message: bytes, raw: RawBytes) -> None:
        said = pb.ToWorker.FromString(message)
        what = said.WhichOneof("body")
        if what == "hello":
            self._greet(said.hello)
        elif what == "views":
            self._mirror.take(said.views)
        elif what == "waits":
            self._waited(said.waits)
        else:
            answer = self._calls.pop(said.call_id, None)
            if answer is not None and not answer.done():
                answer.set_result((said, raw))

    def _greet(self, hello: pb.CoreHello) -> None:
        if common_protocol(hello.oldest_protocol, hello.newest_protocol) is None:
            assert self._link is not None  # noqa: S101 - it has just spoken
            return self._link.close(f"the core is of version {hello.software_version}")
        if not self._has_greeted:
            log.info("core_connected", worker=self._worker, version=hello.software_version)
        self._has_greeted = True
        return self._greeted(hello)

    def _core(self) -> FrameLink:
        """The connection; Unavailable without one, and where it is full."""
        if self._link is None or not self.is_connected:
            raise Unavailable("the core process of the service does not answer")
        if self._link.is_full:
            raise Unavailable("the core process of the service takes nothing")
        return self._link

    async def _ask(self, message: pb.ToCore) -> _Answer:
        link = self._core()
        message.call_id = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._calls[message.call_id] = answer
        link.send(message.SerializeToString())
        try:
            said, raw = await answer
        except BaseException:
            if self._calls.pop(message.call_id, None) is not None:
                cancel = pb.Cancel(cancelled_call_id=message.call_id)
                link.send(pb.ToCore(cancel=cancel).SerializeToString())
            raise
        if said.WhichOneof("body") == "error":
            raise error_of(said.error)
        return said, raw

    def report(self, counts: pb.Counts) -> None:
        """Send what was counted."""
        if self._link is not None:
            self._link.send(pb.ToCore(counts=counts).SerializeToString())

    async def token(self, call: pb.TokenCall) -> pb.TokenAnswer:
        """For RemoteTokens."""
        try:
            async with asyncio.timeout(_TOKEN_MS / 1000):
                said, _ = await self._ask(pb.ToCore(token=call))
        except TimeoutError as error:
            raise Unavailable(f"no delegation token within {_TOKEN_MS} ms") from error
        return said.token

    def token_left(self, subject: str) -> None:
        """For RemoteTokens."""
        if self._link is not None:
            left = pb.TokenLeft(subject=subject)
            self._link.send(pb.ToCore(token_left=left).SerializeToString())

    def node_addresses(self) -> NodeAddresses | None:
        """An AddressLookup: the newest that the core has sent, also while it is away."""
        return self._mirror.addresses

    def own_topic_ids(self) -> frozenset[bytes]:
        """An OwnTopicIds: those that a core has seen, likewise."""
        return self._mirror.own_topic_ids

    # Tier.

    def ready(self) -> bool:
        return self._mirror.ready and self.is_connected

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        return self._mirror.partition(topic, partition)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        call = pb.BarrierCall(
            topic=topic_message(topic), partition=partition, deadline_ms=deadline_ms
        )
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                said, _ = await self._ask(pb.ToCore(barrier=call))
        except TimeoutError as error:
            raise Unavailable(f"no barrier passed within {deadline_ms} ms") from error
        if not said.barrier.HasField("view"):
            return None
        # The mirror has had this view before the answer, and may have a newer one by now.
        return view_of(said.barrier.view).view

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        call = pb.WatermarksCall(
            topic=topic_message(topic), partition=partition, deadline_ms=deadline_ms
        )
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                said, _ = await self._ask(pb.ToCore(watermarks=call))
        except TimeoutError as error:
            raise Unavailable(f"no offsets within {deadline_ms} ms") from error
        return marks_of(said.watermarks)

    async def read(self, request: RemoteRead) -> RemoteRecords:
        self._core()
        max_bytes = min(request.max_bytes, self._memory.most_of_a_read_bytes)
        room = await self._memory.reserve(max_bytes)
        try:
            call = read_message(replace(request, max_bytes=max_bytes))
            said, raw = await self._ask(pb.ToCore(read=call))
            return records_of(said.read, raw)
        finally:
            room.release()

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        call = pb.TimestampCall(
            topic_id=topic_id.raw,
            partition=partition,
            timestamp_ms=timestamp_ms,
            start_offset=start_offset,
        )
        said, _ = await self._ask(pb.ToCore(timestamp=call))
        return timestamp_of(said.timestamp)

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        epochs = self._mirror.epochs(topic_id, partition)
        return -1 if epochs is None else epochs.epoch_for_offset(offset)

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        epochs = self._mirror.epochs(topic_id, partition)
        return None if epochs is None else epochs.end_of(leader_epoch)

    # Deletions.

    def refusal(self, view: TierPartition) -> str | None:
        return self._mirror.refusal(view) if self.is_connected else "the core does not answer"

    async def raise_start(self, view: TierPartition, offset: int) -> int:
        mirrored = MirroredPartition(view=view, epochs=None, refusal=None)
        call = pb.RaiseStartCall(view=view_message(mirrored), offset=offset)
        said, _ = await self._ask(pb.ToCore(raise_start=call))
        return said.raise_start.remote_log_start_offset
