"""The ledger as any Kafka consumer reads it: the newest record of every key, up to a barrier.

Independent of the service: its own consumer and its own fold; of ours it takes the record format.
"""

from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlmm.records import LedgerKey, LedgerRecord, PartitionDeleteRecord, decode_record
from rlmm.topic import LEDGER_TOPIC
from tests.scenarios.cluster import Cluster, fresh

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_LIMIT_S = 120


class LedgerReader:
    """`read` goes on to a barrier taken now; then `of` knows every key."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._newest: dict[LedgerKey, LedgerRecord] = {}
        self._times_ms: dict[LedgerKey, dict[RemoteLogSegmentState | None, int]] = {}
        self.deletions: dict[PartitionKey, list[RemotePartitionDeleteState | None]] = {}
        """States of every partition-delete record in the log, None = a tombstone."""
        self._positions = dict.fromkeys(cluster.partitions(LEDGER_TOPIC), 0)
        self.values = 0
        self.tombstones = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.direct,
                "group.id": fresh("ledger-reader"),
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        starts = self._ends(OffsetSpec.earliest())
        self._consumer.assign([TopicPartition(LEDGER_TOPIC, p, at) for p, at in starts.items()])
        self._positions = starts

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> None:
        """Everything up to the ends of the ledger's partitions as they are now."""
        ends = self._ends(OffsetSpec.latest())
        while any(self._positions[p] < end for p, end in ends.items()):
            message: Any = self._consumer.poll(_LIMIT_S)
            assert message is not None, "the ledger cannot be read"
            self._see(message)

    def of(self, topic_id: Uuid, partition: int | None = None) -> list[LedgerRecord]:
        """The newest record of each of a topic's segments, tombstones left out."""
        return [
            record
            for key, record in self._newest.items()
            if key.partition.topic_id == topic_id
            and partition in (None, key.partition.partition)
            and record.metadata is not None
        ]

    def last_ms(self, topic_id: Uuid, state: RemoteLogSegmentState | None) -> int:
        """When the last segment of a topic came into a state, wall ms; None = its tombstone."""
        return max(
            times[state]
            for key, times in self._times_ms.items()
            if key.partition.topic_id == topic_id
        )

    def _see(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            self._positions[message.partition()] = message.offset()
            return
        record = decode_record(
            key=message.key(),
            value=message.value(),
            headers=message.headers(),
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
        )
        self._positions[message.partition()] = message.offset() + 1
        if isinstance(record, PartitionDeleteRecord):
            self.deletions.setdefault(record.partition, []).append(
                None if record.metadata is None else record.metadata.state
            )
            return
        assert isinstance(record, LedgerRecord)
        self._newest[record.key] = record
        self._times_ms.setdefault(record.key, {})[record.state] = record.timestamp_ms
        self.values += record.metadata is not None
        self.tombstones += record.metadata is None

    def _ends(self, spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(LEDGER_TOPIC, p): spec for p in self._positions}
        found = self._cluster.admin.list_offsets(asked)
        return {
            topic_partition.partition: int(one.result(_LIMIT_S).offset)
            for topic_partition, one in found.items()
        }


def contiguous_finished_end(records: list[LedgerRecord], leader_epoch: int) -> int:
    """Half-open end of the unbroken FINISHED cover from offset 0, all of one leader epoch."""
    cursor = 0
    for metadata in sorted(
        (one.metadata for one in records if one.metadata is not None and one.state is FINISHED),
        key=lambda one: one.start_offset,
    ):
        assert {entry.epoch for entry in metadata.segment_leader_epochs} == {leader_epoch}
        if metadata.start_offset <= cursor:
            cursor = max(cursor, metadata.next_offset)
    return cursor
