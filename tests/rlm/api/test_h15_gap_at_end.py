"""H15: the fetch API goes on where the last remote segment ends without records."""

from dataclasses import dataclass, field

import pytest

from kip405.ids import TopicIdPartition
from rlm.broker.answers import LocalRecords
from rlm.broker.leadership import LedPartition
from rlm.remote_log.reads import PartitionReading, ReadRequest
from tests.kip405.batch_builder import batch
from tests.rlm.proxy.fakes import TOPIC, TOPIC_ID
from tests.rlm.proxy.test_h15_gaps import GAP, gap_tier

LED = LedPartition(
    topic_id_partition=TopicIdPartition(topic_id=TOPIC_ID, topic=TOPIC, partition=0),
    leader=1,
    leader_epoch=9,
    replicas=(1,),
    isr=(1,),
)


@dataclass
class LocalLog:
    """The broker's own log, from 100 on."""

    asked: list[int] = field(default_factory=list)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
    ) -> LocalRecords:
        self.asked.append(offset)
        return LocalRecords(
            high_watermark=200,
            last_stable_offset=200,
            log_start_offset=100,
            records=batch(100, 100) if offset < 200 else b"",
            aborted=(),
        )


@pytest.mark.parametrize("offset", [GAP, 99])
async def test_h15_a_gap_at_the_end_of_the_remote_data_is_passed(offset: int) -> None:
    broker = LocalLog()
    reading = PartitionReading(tier=gap_tier(), broker=broker, barrier_deadline_ms=1_000)
    request = ReadRequest(
        start_offset=offset, end_offset=None, max_bytes=1_000_000, read_committed=False
    )
    pieces = [piece async for piece in reading.stream(LED, request)]
    assert [(piece.next_offset, piece.missing, piece.is_remote) for piece in pieces] == [
        (200, (), False)
    ]
    assert broker.asked == [100]
