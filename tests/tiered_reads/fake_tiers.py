"""Topics in memory that answer like the tiers do, for planning, streams and tasks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rlm_spark.source.reading import Tiers
from tests.rlm_spark.decode.encoding import simple
from tiered_reads.stopping import Stop
from tiered_reads.values import ConnectorOptions, DataLoss, Fetched, OffsetRange, TopicPartition


@dataclass(slots=True)
class FakeLog:
    """One partition: records by timestamp from `start` on."""

    timestamps_ms: list[int] = field(default_factory=list)
    start: int = 0
    is_gone: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.timestamps_ms)

    def append(self, count: int, timestamp_ms: int = 0) -> None:
        self.timestamps_ms += [timestamp_ms] * count

    def trim(self, new_start: int) -> None:
        del self.timestamps_ms[: new_start - self.start]
        self.start = new_start


class FakePositions:
    """`Positions` over logs in memory; what was asked is counted."""

    def __init__(self, logs: dict[TopicPartition, FakeLog]) -> None:
        self.logs = logs
        self.latest_calls = 0
        self.is_open = False
        self.backwards: list[dict[TopicPartition, int]] = []

    def __enter__(self) -> Self:
        self.is_open = True
        return self

    def __exit__(self, *raised: object) -> None:
        self.is_open = False

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for topic, partition in sorted(self.logs):
            if names is None or topic in names:
                found[topic] = (*found.get(topic, ()), partition)
        return found

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            topic_partition: self.logs[topic_partition].start
            for topic_partition in topic_partitions
            if topic_partition in self.logs
        }

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.latest_calls += 1
        ends = {
            topic_partition: self.logs[topic_partition].end
            for topic_partition in topic_partitions
            if topic_partition in self.logs
        }
        return ends | (self.backwards.pop(0) if self.backwards else {})

    def for_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            topic_partition: next(
                (
                    self.logs[topic_partition].start + index
                    for index, stamp in enumerate(self.logs[topic_partition].timestamps_ms)
                    if stamp >= wanted
                ),
                None,
            )
            for topic_partition, wanted in timestamps_ms.items()
            if topic_partition in self.logs
        }


def topic(name: str, *logs: FakeLog) -> dict[TopicPartition, FakeLog]:
    """A topic with one partition for each log."""
    return {TopicPartition(name, number): log for number, log in enumerate(logs)}


@dataclass(slots=True)
class FakeTiers:
    """A task's way to the same logs, three records a piece: k<offset> = v<offset>."""

    positions: FakePositions
    wanted: list[OffsetRange] = field(default_factory=list)

    def tiers(self) -> Tiers:
        return Tiers(read_range=self.read_range, open_positions=lambda options: self.positions)

    def read_range(
        self,
        options: ConnectorOptions,
        wanted: OffsetRange,
        on_loss: Callable[[DataLoss], None],
        *,
        stopped_by: Stop,
    ) -> Iterator[Fetched]:
        self.wanted.append(wanted)
        log = self.positions.logs[wanted.topic_partition]
        start, end = wanted.start_offset, min(wanted.end_offset, log.end)
        if start < log.start:
            lost_to = min(log.start, wanted.end_offset)
            on_loss(
                DataLoss(
                    topic_partition=wanted.topic_partition,
                    start_offset=start,
                    end_offset=lost_to,
                    reason="aged out",
                    resumes_at=None if log.is_gone else log.start,
                )
            )
            start = lost_to
        while start < end:
            upto = min(start + 3, end)
            yield Fetched(batches=simple(start, upto - start).encode(), next_offset=upto)
            start = upto
