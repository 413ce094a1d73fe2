"""What the benchmark of the connector runs, and in which order. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

MIB = 1 << 20
CODECS = ("none", "lz4", "zstd")

OURS = "kafka_tiered"
TUNED = "kafka tuned"
DEFAULT = "kafka default"

SUM = "sum"
VALUE = "value"
EXPORT = "export"
TASKS = (SUM, VALUE, EXPORT)
TASKS_IN_WORDS = {
    SUM: "count and sum of the values' lengths, all seven columns",
    VALUE: 'the same with the value alone: ours .schema("value binary"), theirs .select("value")',
    EXPORT: "all seven columns to Parquet, zstd: ours pipelines.export, theirs write.parquet",
}
TUNED_OPTIONS = {
    "kafka.fetch.max.bytes": str(64 * MIB),
    "kafka.fetch.max.wait.ms": "1",
    "kafka.max.partition.fetch.bytes": str(16 * MIB),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(4 * MIB),
}
"""What measured best for the peer on loopback; DEFAULT has none of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Records of one size and one codec."""

    record_bytes: int
    codec: str

    @property
    def name(self) -> str:
        return f"bench-spark-{self.record_bytes}-{self.codec}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One comparison: what is read, by how many cores, to what end."""

    cores: int
    topic: Topic
    task: str

    @property
    def variants(self) -> tuple[str, ...]:
        """The default peer is shown where it counts and sums; elsewhere the tuned one is enough."""
        return (OURS, TUNED, DEFAULT) if self.task == SUM else (OURS, TUNED)

    def order(self, pass_number: int) -> tuple[str, ...]:
        """Each variant is first, second and last equally often."""
        first = pass_number % len(self.variants)
        return self.variants[first:] + self.variants[:first]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Sizes in MiB of values of each topic, before compression."""

    size_mib: int
    segment_mib: int
    partitions: int
    passes: int
    record_bytes: tuple[int, ...]
    codecs: tuple[str, ...]
    cores: tuple[int, ...]
    tasks: tuple[str, ...]
    jvm: str

    @classmethod
    def full(cls) -> Self:
        """The numbers that count."""
        return cls(
            size_mib=1024,
            segment_mib=8,
            partitions=4,
            passes=5,
            record_bytes=(100, 1024),
            codecs=CODECS,
            cores=(1, 2),
            tasks=TASKS,
            jvm="full",
        )

    @classmethod
    def quick(cls) -> Self:
        """Proof that the benchmark works; its numbers mean nothing."""
        return cls(
            size_mib=48,
            segment_mib=1,
            partitions=2,
            passes=1,
            record_bytes=(1024,),
            codecs=("lz4",),
            cores=(2,),
            tasks=TASKS,
            jvm="quick",
        )

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple(
            Topic(record_bytes=size, codec=codec)
            for size in self.record_bytes
            for codec in self.codecs
        )

    def records(self, topic: Topic) -> int:
        return self.size_mib * MIB // topic.record_bytes

    def cells(self, cores: int) -> Iterator[Cell]:
        """All that runs in one Spark."""
        for task in self.tasks:
            for topic in self.topics:
                yield Cell(cores=cores, topic=topic, task=task)
