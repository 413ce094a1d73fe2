"""Our own broker in memory, as far as lanes ask it: one topic of one partition."""

from collections.abc import Callable
from dataclasses import replace

from kip405.batches import walk
from kip405.errors import Fenced, NotFound
from rlm.broker.answers import (
    LocalRecords,
    OffsetAnswer,
    PartitionDescription,
    TopicConfigValue,
    TopicDescription,
)
from tests.builders.ledger import PLACE


class MemoryBroker:
    """State is public; `log` is the whole log. `before_delete` may raise or change things."""

    def __init__(self, *, node_id: int = 1, leader_epoch: int = 0) -> None:
        self.partition = PartitionDescription(
            partition=PLACE.partition,
            leader=node_id,
            leader_epoch=leader_epoch,
            replicas=(node_id,),
            isr=(node_id,),
        )
        self.topic_id = PLACE.topic_id
        self.exists = True
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

    def elect(self, leader: int, leader_epoch: int) -> None:
        self.partition = replace(self.partition, leader=leader, leader_epoch=leader_epoch)

    def ends_at(self, offset: int) -> None:
        """All positions at the end of the log."""
        self.last_stable_offset = self.high_watermark = self.log_end_offset = offset

    async def topic(self, name: str) -> TopicDescription:
        if not self.exists or name != PLACE.topic:
            raise NotFound(f"topic {name!r} does not exist")
        return TopicDescription(
            name=name,
            topic_id=self.topic_id,
            internal=False,
            partitions={self.partition.partition: self.partition},
        )

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> dict[str, TopicConfigValue]:
        return {
            name: TopicConfigValue(value=value, is_topic_level=True)
            for name, value in self.config.items()
            if not names or name in names
        }

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
            offset = self.log_start_offset
        elif replica_id == -2:
            offset = self.log_end_offset
        else:
            offset = self.last_stable_offset if read_committed else self.high_watermark
        return OffsetAnswer(offset=offset, leader_epoch=leader_epoch, timestamp_ms=-1)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, leader_epoch: int = -1
    ) -> LocalRecords:
        self._check(leader_epoch)
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise Fenced(f"fetch at {offset}: OFFSET_OUT_OF_RANGE (1)")
        start = next(at for at, header in walk(self.log) if header.last_offset >= offset)
        return LocalRecords(
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            records=self.log[start : start + max_bytes],
            aborted=(),
        )

    async def delete_records(
        self, topic: str, partition: int, offset: int, *, timeout_ms: int
    ) -> int:
        self.before_delete()
        if offset > self.high_watermark:
            raise Fenced(f"delete below {offset}: OFFSET_OUT_OF_RANGE (1)")
        self.deleted.append(offset)
        self.log_start_offset = max(self.log_start_offset, offset)
        self.after_delete()
        return self.log_start_offset

    def _check(self, leader_epoch: int) -> None:
        if leader_epoch not in (-1, self.partition.leader_epoch):
            raise Fenced(f"epoch {leader_epoch}: FENCED_LEADER_EPOCH (74)")
