"""The service beside a broker within a program: RemoteLogManager, as the first draft of KIP-405 has
it.

That draft's class is a part of the broker, which calls `addPartitions`, `removePartitions`, `read`
and `shutdown`. This one is `rlm serve` in the event loop of a program, whole: proxy, API and HTTP
listen, the heartbeat is published, since services of other brokers trim only where this broker's
clients find old records. What the program decides is which of the partitions that the broker leads
have tasks (rlm.tasks.assignment). It never decides who leads: the broker is asked, before each
copy, trim and deletion, as without a program. The lock of the broker is held, so a second
service or manager of it is refused (H13).

Signals, logs and the settings of the garbage collector are the program's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from kip405.open_files import raise_open_files_limit
from rlm.api.remote_fetch import DEFAULT_MAX_BYTES, MOST_BYTES
from rlm.clock import Clock, SystemClock
from rlm.config import ServiceConfig, load
from rlm.log_dir.held_segments import USEFUL_OPEN_FILES
from rlm.log_dir.identity import ServiceLock, read_identity
from rlm.remote_log.reads import Piece, ReadRequest
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.service.broker_service import BrokerService
from rlm.service.fetch_api import remote_view
from rlm.service.lifetime import check_disks, first_error, serving
from rlm.service.threads import service_threads
from rlm.tasks.assignment import Assignment
from rlm.v1 import fetch_pb2
from rlm.workers.ending import Ending
from rsm_plugins.store_kinds import require_library

_PRINCIPAL = "embedded"
_READS_POLL_MS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReadResult:
    """Whole batches byte for byte as they were produced, from the one that holds the offset on.

    `next_offset` is where the next read begins; it is the offset of the read itself where there are
    no records. `log_start_offset` and `remote_next_offset`: where the remote log starts and ends
    (exclusive). `aborted`: (producer id, first offset) of aborted transactions, for read_committed
    alone. `missing`: half-open ranges below `next_offset` that no tier has any more.
    """

    records: bytes
    next_offset: int
    log_start_offset: int
    remote_next_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    missing: tuple[tuple[int, int], ...] = ()


class RemoteLogManager:
    """Tiers partitions of one broker from within a program; an async context manager, entered once.

    `settings` are those of `rlm serve`, or the path of its file (`configure` of KIP-405).
    `partitions` have tasks from the beginning; None = all that the broker leads, also later.
    """

    def __init__(
        self,
        settings: ServiceConfig | Path,
        *,
        partitions: Iterable[TopicPartition] | None = (),
        clock: Clock | None = None,
    ) -> None:
        """Invalid: settings that cannot be used, or that need processes of their own."""
        self._settings = settings
        self._config = self._reread()
        if self._config.proxy_workers:
            raise Invalid("proxy.workers: a program that embeds the service is one process; set 0")
        for store in self._config.stores:
            require_library(store.kind)
        self._assignment = Assignment(partitions)
        self._clock = clock or SystemClock()
        self._ending = Ending(self._clock)
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self._serving: asyncio.Task[None] | None = None
        self._service: BrokerService | None = None
        self._view: RemoteView | None = None
        self._reads: set[asyncio.Timeout] = set()
        self._was_entered = self._is_open = self._is_ending = False

    async def __aenter__(self) -> Self:
        """Start, and wait until the broker was checked and ledger and settings were read: the
        caller bounds the wait. Invalid: disks, broker or listeners are not those of the settings,
        or another service works for the broker.
        """
        if self._was_entered:
            raise Invalid("a RemoteLogManager is entered once; make another one")
        self._was_entered = True
        disks = read_identity([str(path) for path in self._config.log_dirs])
        check_disks(self._config, disks)
        raise_open_files_limit(USEFUL_OPEN_FILES)
        async with AsyncExitStack() as stack:
            stack.enter_context(ServiceLock(str(self._config.state_dir), disks))
            stack.callback(self._ending.ended)
            stack.enter_context(_without_group())
            await stack.enter_async_context(self._group)
            stack.push_async_callback(self.shutdown)
            await self._start()
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`shutdown`. An error that ended the service cancels the block, and is raised here."""
        if isinstance(error, asyncio.CancelledError):
            await self._stack.__aexit__(kind, error, trace)
        else:
            await self._stack.aclose()

    async def _start(self) -> None:
        started = asyncio.Event()
        self._serving = self._group.create_task(self._serve(started))
        await started.wait()
        assert self._service is not None  # noqa: S101 - it has started
        self._view = remote_view(self._service.dependencies)
        await self._service.dependencies.metadata.log.wait_ready()
        await self._service.ask_leaders()

    def _reread(self) -> ServiceConfig:
        given = self._settings
        return load(given) if isinstance(given, Path) else given

    async def _serve(self, started: asyncio.Event) -> None:
        with service_threads(self._config) as threads:

            def make(tasks: asyncio.TaskGroup) -> BrokerService:
                self._service = BrokerService(
                    self._config,
                    self._clock,
                    tasks,
                    threads,
                    self._reread,
                    assignment=self._assignment,
                    started=started.set,
                )
                return self._service

            await serving(make, self._ending)

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> bool:
        """Have tasks for these partitions: copy what is closed at once, then at intervals; trim and
        expire as the topics say (`addPartitions` of KIP-405).

        Whether all of them are led here now, of topics that were enabled (`rlm topics enable`).
        Where one is not, its tasks begin as soon as it is. Followers need no call: every service
        reads the ledger. Unavailable: Kafka does not answer, and nothing was added.
        """
        wanted = frozenset(partitions)
        service = self._open()
        await service.ask_leaders()
        service.tasks.add(wanted)
        return wanted <= {row.topic_partition for row in service.tasks.led()}

    async def remove_partitions(self, partitions: Iterable[TopicPartition]) -> bool:
        """Begin no task for these partitions any more, and wait until those that run have ended:
        segments that are being copied are copied whole (`removePartitions` of KIP-405).

        Whether any of them is still led here: the broker's log then grows, and `rlm status` has a
        problem, until it is added again. A caller that gives up waiting has removed them.
        Invalid: this manager works on all partitions.
        """
        wanted = frozenset(partitions)
        service = self._open()
        await service.tasks.remove(wanted)
        return any(row.topic_partition in wanted for row in service.tasks.led())

    def led_partitions(self) -> frozenset[TopicPartition]:
        """The partitions of enabled topics that the broker leads, by its last answer."""
        return frozenset(row.topic_partition for row in self._open().tasks.led())

    def left_out(self) -> frozenset[TopicPartition]:
        """Those of them without tasks."""
        return frozenset(row.topic_partition for row in self._open().tasks.left_out())

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        hard_max_bytes: bool = False,
        read_committed: bool = False,
    ) -> LogReadResult:
        """Read a partition of the cluster from the remote tier, whoever leads it, added or not
        (`read` of KIP-405's first draft, which takes a list of partitions).

        The first batch comes whole, however large, unless `hard_max_bytes`. At the end of the
        remote log and beyond, no records: a broker has them in its own log, or nobody yet.

        OffsetOutOfRange: below the remote log start. NotFound: no such partition is tiered.
        Unavailable, Busy: try again. Corrupt: objects are damaged or missing. Fenced: frozen.
        """
        service = self._open()
        if offset < 0:
            raise Invalid(f"offset {offset} is negative")
        if not 1 <= max_bytes <= MOST_BYTES:
            raise Invalid(f"max_bytes {max_bytes}: 1 to {MOST_BYTES}")
        request = ReadRequest(
            start_offset=offset, end_offset=None, max_bytes=max_bytes, read_committed=read_committed
        )
        async with self._reading():
            piece = await self._first_piece(service, partition, request)
            if piece is None or (hard_max_bytes and piece.size_bytes > max_bytes):
                return await self._nothing(partition, offset)
            result = _result(piece)
            piece.batches.clear()  # a read that waits for its quota holds no chunks
            await service.dependencies.throttle.pace(
                _PRINCIPAL, len(result.records), is_remote=True
            )
            return result

    async def _first_piece(
        self, service: BrokerService, partition: TopicPartition, request: ReadRequest
    ) -> Piece | None:
        lineage_reader = service.dependencies.tier.lineage_reader
        reading = RemoteReading(view=self._known_view(), reader=lineage_reader)
        ref = fetch_pb2.TopicRef(name=partition.topic)
        async with aclosing(reading.stream(ref, partition.partition, request)) as pieces:
            async for piece in pieces:
                return piece
        return None

    async def _nothing(self, partition: TopicPartition, offset: int) -> LogReadResult:
        ref = fetch_pb2.TopicRef(name=partition.topic)
        state = await self._known_view().partition(ref, partition.partition)
        return LogReadResult(
            records=b"",
            next_offset=offset,
            log_start_offset=state.log_start_offset,
            remote_next_offset=state.next_offset,
        )

    async def shutdown(self) -> None:
        """Finish reads and answers under way within `shutdown.timeout.ms`, stop all tasks and close
        everything (`shutdown` of KIP-405). A second call waits for the first; leaving the block
        calls it, too.
        """
        self._is_open = False
        if self._serving is None:
            return
        if not self._is_ending:
            self._is_ending = True
            self._ending.asked()
            try:
                await self._end_reads()
            finally:
                self._serving.cancel()
        await asyncio.wait([self._serving])

    async def _end_reads(self) -> None:
        until_ms = self._clock.monotonic_ms() + self._config.shutdown_timeout_ms
        while self._reads and self._clock.monotonic_ms() < until_ms:
            await self._clock.sleep_ms(_READS_POLL_MS)
        for limit in self._reads:
            limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        """A read that `shutdown` waits for, and ends in the end."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._reads.add(limit)
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Unavailable("the RemoteLogManager was shut down during the read") from error
        finally:
            self._reads.discard(limit)

    def _open(self) -> BrokerService:
        if self._service is None or not self._is_open:
            raise Unavailable("the RemoteLogManager does not run: it is to be entered, once")
        return self._service

    def _known_view(self) -> RemoteView:
        assert self._view is not None  # noqa: S101 - made at the start
        return self._view


@contextmanager
def _without_group() -> Iterator[None]:
    """Errors of this product come as they are, without the group of the tasks."""
    try:
        yield
    except* RemoteStorageError as errors:
        raise first_error(errors) from errors


def _result(piece: Piece) -> LogReadResult:
    return LogReadResult(
        records=b"".join(piece.batches),
        next_offset=piece.next_offset,
        log_start_offset=piece.log_start_offset,
        remote_next_offset=piece.high_watermark,
        aborted=piece.aborted,
        missing=piece.missing,
    )
