"""The clients of a soak: very many, who ask seldom, of three brokers behind secured proxies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from kafka_protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
    REPLICA_NOT_AVAILABLE,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.scenarios.counted_clients import (
    Connect,
    CountedClient,
    CountedConsumer,
    CountedProducer,
    Habits,
    Rereader,
)

NODES = (1, 2, 3)
PARTITIONS = 30
_REREADERS_PART = 40
_INTERVAL_S = 4.0
_COME_WITHIN_S = 0.03
"""For each connection at the beginning."""
_LAST_S = 120.0
"""Until followers have the last records."""
_CLOSED_WITHIN_S = 5.0
_PASSING = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REQUEST_TIMED_OUT,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
    }
)
"""Errors of a broker that begins or ends."""

_USUAL = Habits(
    interval_s=_INTERVAL_S,
    value_bytes=1_024,
    max_wait_ms=5_000,
    again_s=0.25,
    longest_again_s=4.0,
    passing=_PASSING,
)


def node_of(partition: int) -> int:
    """Which broker has it."""
    return NODES[partition % len(NODES)]


class Load:
    """A producer of each partition of one topic, some who read old records again and again, and the
    others at the tail of what is produced.
    """

    def __init__(self, addresses: dict[int, str], connect: Connect, count: int) -> None:
        """`addresses`: of the proxies, by node."""
        self._addresses, self._count = addresses, count
        self._habits = replace(_USUAL, connect=connect)
        self.producers: list[CountedProducer] = []
        self.rereaders: list[Rereader] = []
        self.followers: list[CountedConsumer] = []

    def reread(self, topic: str, ends: dict[int, int], pause_s: float) -> None:
        """`ends`: of the records that are to be read, by partition."""
        habits = replace(self._habits, interval_s=pause_s, fetch_bytes=64 << 10)
        for number in range(self._count // _REREADERS_PART):
            one = number % len(ends)
            reader = Rereader(self._addresses[node_of(one)], topic, one, habits)
            reader.until_offset = ends[one]
            self.rereaders.append(reader)

    def produce_and_follow(self, topic: str) -> None:
        """As many followers as are left."""
        for one in range(PARTITIONS):
            address = self._addresses[node_of(one)]
            self.producers.append(CountedProducer(address, topic, one, self._habits))
        for number in range(self._count - len(self.producers) - len(self.rereaders)):
            one = number % PARTITIONS
            address = self._addresses[node_of(one)]
            self.followers.append(CountedConsumer(address, topic, one, self._habits))

    @property
    def clients(self) -> list[CountedClient]:
        return [*self.producers, *self.rereaders, *self.followers]

    def of(self, node: int) -> list[CountedClient]:
        """Those that are connected to its service."""
        return [one for one in self.clients if node_of(one.partition) == node]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At the end, followers have all that was acknowledged."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            readers = (*self.followers, *self.rereaders)
            reading = [
                group.create_task(_later(one.run, number * _COME_WITHIN_S))
                for number, one in enumerate(readers)
            ]
            async with asyncio.TaskGroup() as producing:
                for number, producer in enumerate(self.producers):
                    begin_s = number * _INTERVAL_S / PARTITIONS
                    producing.create_task(_later(producer.run, begin_s))
                try:
                    yield
                finally:
                    for one in (*self.producers, *self.rereaders):
                        one.is_ending = True
            for follower in self.followers:
                follower.end = len(self.producers[follower.partition].written)
            async with asyncio.timeout(_LAST_S):
                await asyncio.wait(reading)

    async def _close(self) -> None:
        for client in self.clients:
            client.close()
        await asyncio.sleep(_CLOSED_WITHIN_S)  # TLS says farewell

    def check(self) -> None:
        """Each follower has what was acknowledged, once and in order."""
        problems = [problem for one in self.clients for problem in one.problems]
        assert not problems, problems[:5]
        for producer in self.producers:
            offsets = [offset for offset, _ in producer.written]
            assert offsets == list(range(len(offsets)))
        for follower in self.followers:
            assert follower.written == self.producers[follower.partition].written
        assert min(one.passes for one in self.rereaders) >= 1

    def values(self) -> dict[tuple[int, int], int]:
        """Checksums of the values by partition and offset."""
        return {
            (one.partition, offset): value
            for one in self.producers
            for (offset, _), value in zip(one.written, one.values, strict=True)
        }


async def _later(run: Callable[[], Awaitable[None]], wait_s: float) -> None:
    """Clients come one after the other, and producers send in turn."""
    await asyncio.sleep(wait_s)
    await run()
