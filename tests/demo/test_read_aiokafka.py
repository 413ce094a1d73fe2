"""When the demo's read with aiokafka is at its end: a consumer that answers by a script."""

from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition

from rlm_sandbox.demo.comparison import Comparison
from rlm_sandbox.demo.content import DemoRecord, Headers
from rlm_sandbox.demo.read_aiokafka import read_to_ends
from rlm_sandbox.demo.report import DemoError
from tests.builders.clock import ManualClock
from tests.demo.builders import PARTITION, right_read, yardstick

TOPIC_PARTITION = TopicPartition("demo", PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A record as aiokafka gives it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def given(offset: int, record: DemoRecord) -> Given:
    return Given(
        offset=offset,
        timestamp=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


@dataclass(slots=True)
class ScriptedConsumer:
    """Gives the records a few at a time; at the end its position passes `markers` silently."""

    clock: ManualClock
    records: list[Given]
    markers: int = 0
    at: int = 0

    async def getmany(self, *, timeout_ms: int) -> dict[TopicPartition, list[Given]]:
        taken, self.records = self.records[:5], self.records[5:]
        if taken:
            self.at = taken[-1].offset + 1
            return {TOPIC_PARTITION: taken}
        self.clock.advance(timeout_ms)
        self.at, self.markers = self.at + self.markers, 0
        return {}

    async def position(self, partition: TopicPartition) -> int:
        assert partition == TOPIC_PARTITION
        return self.at


async def read(*, end_behind: int, markers: int, records: int = 18) -> Comparison:
    """A read of a log whose end is so far behind the last record."""
    expected = yardstick()
    rows = [given(offset, record) for offset, record in right_read(expected)]
    end = rows[-1].offset + 1 + end_behind
    clock = ManualClock()
    consumer = ScriptedConsumer(clock, rows[:records], markers)
    return await read_to_ends(
        consumer, {TOPIC_PARTITION: end}, expected, clock=clock, progress=lambda _: None
    )


@pytest.mark.parametrize("markers", [0, 1, 2])
async def test_markers_behind_the_last_record_end_the_read_too(markers: int) -> None:
    result = await read(end_behind=markers, markers=markers)
    assert result.is_equal
    assert result.read_records == 18


async def test_a_read_without_progress_is_an_error() -> None:
    with pytest.raises(DemoError, match="no record for 60 s after 15 of 18"):
        await read(end_behind=0, markers=0, records=15)
