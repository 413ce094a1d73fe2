"""Reads every partition of our topics from the beginning, for ever, in order, and says how far it
is.

One consumer, assigned by hand, no group. A failure ends the consumer, never the tail: it is made
again after a back-off and goes on at the offset after the last record handed over. Must not know
what records mean.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord, TopicPartition

from rlmm.barrier import Place
from rlmm.clients import ConnectionSettings, make_consumer

_POLL_MS = 250
_BACKOFF_MS = (100, 250, 500, 1_000, 2_000)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """One record as Kafka gave it."""

    place: Place
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Tail:
    """`deliver` is called for each record, synchronously, in the order of its partition."""

    def __init__(
        self,
        *,
        connection: ConnectionSettings,
        places: Iterable[Place],
        deliver: Callable[[TailRecord], None],
        sleep_ms: Callable[[int], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._places = tuple(places)
        self._deliver = deliver
        self._sleep_ms = sleep_ms
        self._next: dict[Place, int] = {}
        self._initial_end: dict[Place, int] = {}
        self._waiters: dict[Place, list[tuple[int, asyncio.Future[None]]]] = {}
        self._caught_up = asyncio.Event()
        self._failures = 0
        self._out_of_range = False
        self.lost: str | None = None
        """Records were removed before they were read: what was read no longer tells the whole."""

    @property
    def is_caught_up(self) -> bool:
        """Everything that was there at the start was read."""
        return self._caught_up.is_set()

    async def wait_caught_up(self) -> None:
        await self._caught_up.wait()

    def position(self, place: Place) -> int:
        """Next offset to be read; 0 before the start."""
        return self._next.get(place, 0)

    async def wait_passed(self, place: Place, end: int) -> None:
        """Return once every record below `end` was delivered."""
        if self.position(place) >= end:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(place, []).append((end, future))
        await future

    async def run(self) -> NoReturn:
        """Follow the log until cancelled."""
        while True:
            try:
                await self._follow()
            except OffsetOutOfRangeError as error:
                self._out_of_range = True
                await self._fail("tail_out_of_range", error)
            except (KafkaError, OSError, TimeoutError) as error:
                await self._fail("tail_restarts", error)

    async def _fail(self, event: str, error: BaseException) -> None:
        delay = _BACKOFF_MS[min(self._failures, len(_BACKOFF_MS) - 1)]
        self._failures += 1
        log.warning(event, error=repr(error), retry_in_ms=delay)
        await self._sleep_ms(delay)

    async def _follow(self) -> NoReturn:
        consumer = make_consumer(self._connection)
        try:
            await consumer.start()
            await self._seek(consumer)
            while True:
                await self._poll(consumer)
                self._failures = 0
        finally:
            await consumer.stop()

    async def _seek(self, consumer: AIOKafkaConsumer) -> None:
        partitions = [TopicPartition(*place) for place in self._places]
        consumer.assign(partitions)
        if not self._initial_end or self._out_of_range:
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
            self._take_bounds({Place(*partition): begin for partition, begin in begins.items()})
            if not self._initial_end:
                self._initial_end = {Place(*partition): end for partition, end in ends.items()}
            self._out_of_range = False
        for partition in partitions:
            consumer.seek(partition, self._next[Place(*partition)])
        self._check_caught_up()

    def _take_bounds(self, begins: dict[Place, int]) -> None:
        for place, begin in begins.items():
            position = self._next.setdefault(place, begin)
            if begin > position:
                self.lost = f"records {position}..{begin} of {place} were removed before being read"
                log.error("tail_lost_records", topic=place.topic, partition=place.partition)
                self._next[place] = begin

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        batches = await consumer.getmany(timeout_ms=_POLL_MS)
        for partition, records in batches.items():
            place = Place(*partition)
            for record in records:
                self._deliver(_tail_record(place, record))
                self._next[place] = record.offset + 1
        for place in self._behind():
            position = await consumer.position(TopicPartition(*place))
            self._next[place] = max(self._next[place], position)
        for place in [*map(_place, batches), *self._waiters]:
            self._wake(place)
        self._check_caught_up()

    def _behind(self) -> list[Place]:
        """Partitions somebody waits for: the last records of a compacted log may be gone, the
        position tells.
        """
        if self._caught_up.is_set():
            return [place for place, waiting in self._waiters.items() if waiting]
        return [place for place, end in self._initial_end.items() if self._next[place] < end]

    def _wake(self, place: Place) -> None:
        position = self.position(place)
        still = []
        for end, future in self._waiters.get(place, []):
            if future.done():
                continue
            if end <= position:
                future.set_result(None)
            else:
                still.append((end, future))
        if place in self._waiters:
            self._waiters[place] = still

    def _check_caught_up(self) -> None:
        behind = (end for place, end in self._initial_end.items() if self._next[place] < end)
        if not self._caught_up.is_set() and next(behind, None) is None:
            self._caught_up.set()


def _place(partition: TopicPartition) -> Place:
    return Place(*partition)


def _tail_record(place: Place, record: ConsumerRecord) -> TailRecord:
    return TailRecord(
        place=place,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
