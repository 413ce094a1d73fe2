"""Our own broker in memory, as far as tasks ask it: one topic of one partition."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from kip405.batches import batch_headers
from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import TopicPartition
from rlm.broker.answers import (
    LocalRecords,
    OffsetAnswer,
    PartitionDescription,
    TopicConfigValue,
    TopicDescription,
)
from tests.builders.ledger import PARTITION


class MemoryBroker:
    """State is public; `log` is the whole log. `before_delete` may raise or change things.

    `after_answer` receives the name of every request once its answer is on its way: what changes
    then, the answer does not know. `held` answers arrive when their event is set. With
    `gives_up_deletes` a DeleteRecords is not answered in time; `work_off` executes it later (H41).
    """

    def __init__(self, *, node_id: int = 1, leader_epoch: int = 0) -> None:
        self.partition = PartitionDescription(
            partition=PARTITION.partition,
            leader=node_id,
            leader_epoch=leader_epoch,
            replicas=(node_id,),
            isr=(node_id,),
        )
        self.topic_id = PARTITION.topic_id
        self.exists = True
        self.internal = False
        self.config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "remote.storage.enable": "false",
        }
        self.log_start_offset = 0
        self.last_stable_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self.log = b""
        self.deleted: list[int] = []
        self.before_delete: Callable[[], None] = lambda: None
        self.after_delete: Callable[[], None] = lambda: None
        self.asked: list[str] = []
        self.after_answer: Callable[[str], None] = lambda _: None
        self.held: dict[str, asyncio.Event] = {}
        self.answers = True
        self.answers_late: asyncio.Event | None = None
        """Set when a DeleteRecords came in that will not be answered."""
        self.gives_up_deletes = False
        self.given_up: list[int] = []
        self.closed_connections = 0

    def elect(self, leader: int, leader_epoch: int) -> None:
        self.partition = replace(self.partition, leader=leader, leader_epoch=leader_epoch)

    def ends_at(self, offset: int) -> None:
        """All positions at the end of the log."""
        self.last_stable_offset = self.high_watermark = self.log_end_offset = offset

    async def topic(self, name: str) -> TopicDescription:
        if not self.exists or name != PARTITION.topic:
            raise NotFound(f"topic {name!r} does not exist")
        answer = TopicDescription(
            name=name,
            topic_id=self.topic_id,
            internal=self.internal,
            partitions={self.partition.partition: self.partition},
        )
        await self._answered("topic")
        return answer

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> dict[str, TopicConfigValue]:
        answer = {
            name: TopicConfigValue(value=value, is_topic_level=True)
            for name, value in self.config.items()
            if not names or name in names
        }
        await self._answered("topic config")
        return answer

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        leader_epoch: int = -1,
        read_committed: bool = False,
        replica_id: int = -1,
    ) -> OffsetAnswer:
        self._check(leader_epoch)
        if timestamp == -2:
            question, offset = "log start", self.log_start_offset
        elif replica_id == -2:
            question, offset = "log end", self.log_end_offset
        elif read_committed:
            question, offset = "last stable offset", self.last_stable_offset
        else:
            question, offset = "high watermark", self.high_watermark
        await self._answered(question)
        return OffsetAnswer(offset=offset, leader_epoch=leader_epoch, timestamp_ms=-1)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, leader_epoch: int = -1
    ) -> LocalRecords:
        self._check(leader_epoch)
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise Fenced(f"fetch at {offset}: OFFSET_OUT_OF_RANGE (1)")
        start = next(at for at, header in batch_headers(self.log) if header.last_offset >= offset)
        answer = LocalRecords(
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            records=self.log[start : start + max_bytes],
            aborted=(),
        )
        await self._answered("fetch")
        return answer

    def deletion_connection(self) -> "MemoryDeletionConnection":
        return MemoryDeletionConnection(self)

    def take_up(self, offset: int) -> int:
        """What the broker does with a DeleteRecords when it gets to it."""
        self.before_delete()
        return self._delete(offset)

    def work_off(self) -> None:
        """The broker gets to the deletes whose caller has given up."""
        given_up, self.given_up = self.given_up, []
        for offset in given_up:
            self.take_up(offset)

    def _delete(self, offset: int) -> int:
        if offset > self.high_watermark:
            raise Fenced(f"delete below {offset}: OFFSET_OUT_OF_RANGE (1)")
        self.deleted.append(offset)
        self.log_start_offset = max(self.log_start_offset, offset)
        self.after_delete()
        return self.log_start_offset

    async def _answered(self, question: str) -> None:
        self.asked.append(question)
        self.after_answer(question)
        if question in self.held:
            await self.held[question].wait()

    def _check(self, leader_epoch: int) -> None:
        if leader_epoch not in (-1, self.partition.leader_epoch):
            raise Fenced(f"epoch {leader_epoch}: FENCED_LEADER_EPOCH (74)")


class MemoryDeletionConnection:
    """One DeleteRecords to a MemoryBroker: answered at once; or given up, because the connection
    ends before the answer (`gives_up_deletes`) or no answer comes (`answers_late`).
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def open(self) -> None:
        if not self._broker.answers:
            raise Unavailable("the broker does not answer")

    async def send(self, partition: TopicPartition, offset: int, *, hold_ms: int) -> int:
        broker = self._broker
        if broker.gives_up_deletes:
            broker.given_up.append(offset)
            raise ConnectionResetError("the broker closed the connection")
        if broker.answers_late is not None:
            broker.given_up.append(offset)
            broker.answers_late.set()
            await asyncio.Event().wait()
        return broker.take_up(offset)

    async def close(self) -> None:
        self._broker.closed_connections += 1
