"""A cluster that takes records from producers, as rlmm's publisher sees aiokafka's: acks come late,
never, or as an error; what was never acknowledged may be in the log all the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from aiokafka.errors import KafkaError

from rlmm.clients import ConnectionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One record that a producer was given."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class FakeCluster:
    """`log` is what arrived. Every producer of `make` writes into it.

    `acks` False: records arrive, and no sender knows before `acknowledge`. `refusal`: what sending
    raises; `failure`: what the ack is; `holds_start`: connecting takes until it is set, and
    `holds_close` closing.
    """

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.producers: list[FakeProducer] = []
        self.layout: frozenset[object] = frozenset({"one broker"})
        self.acks = True
        self.refusal: KafkaError | None = None
        self.failure: KafkaError | None = None
        self.unreachable: Exception | None = None
        self.holds_start: asyncio.Event | None = None
        self.holds_close: asyncio.Event | None = None
        self.after_append: Callable[[], None] = lambda: None
        self._open: list[tuple[int, asyncio.Future[SimpleNamespace]]] = []

    def make(self, settings: ConnectionSettings) -> "FakeProducer":
        made = FakeProducer(self)
        self.producers.append(made)
        return made

    def append(self, sent: Sent) -> "asyncio.Future[SimpleNamespace]":
        delivery: asyncio.Future[SimpleNamespace] = asyncio.get_running_loop().create_future()
        self._open.append((len(self.log), delivery))
        self.log.append(sent)
        self.after_append()
        if self.acks:
            self.acknowledge()
        return delivery

    def acknowledge(self) -> None:
        """Answer every record that still has no ack."""
        unanswered, self._open = self._open, []
        for offset, delivery in unanswered:
            if delivery.done():
                continue
            if self.failure is not None:
                delivery.set_exception(self.failure)
            else:
                delivery.set_result(SimpleNamespace(offset=offset))


class FakeProducer:
    """As much of AIOKafkaProducer as rlmm touches, the private parts of `abort_producer` too."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._closed = False
        self._sender = _Sender()
        self.client = _Client(cluster)
        self.is_started = False

    @property
    def is_aborted(self) -> bool:
        """Dropped for good, with what it had not sent."""
        return self.is_cut and self.client.is_closed

    @property
    def is_cut(self) -> bool:
        """It sends nothing any more."""
        sender_task = self._sender.sender_task
        return self._closed and sender_task.cancelling() > 0 and self.client.is_cut

    async def start(self) -> None:
        if self._cluster.holds_start is not None:
            await self._cluster.holds_start.wait()
        if self._cluster.unreachable is not None:
            raise self._cluster.unreachable
        self.is_started = True

    async def send(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> "asyncio.Future[SimpleNamespace]":
        assert self.is_started
        assert not self._closed
        if self._cluster.refusal is not None:
            raise self._cluster.refusal
        return self._cluster.append(
            Sent(topic=topic, partition=partition, key=key, value=value, headers=tuple(headers))
        )


class _Sender:
    def __init__(self) -> None:
        self.sender_task = asyncio.ensure_future(asyncio.Event().wait())


class _Client:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.is_cut = self.is_closed = False

    def cut(self) -> None:
        self.is_cut = True

    async def close(self) -> None:
        if self._cluster.holds_close is not None:
            await self._cluster.holds_close.wait()
        self.is_cut = self.is_closed = True

    @property
    def layout(self) -> frozenset[object]:
        return self._cluster.layout
