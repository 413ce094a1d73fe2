"""What a benchmark of reads runs, and in which order. Pure.

Three ways to the same records: remote data through our proxy, an untrimmed twin topic straight from
the broker, and Kafka's own tiered storage (LocalTieredStorage) from the same broker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

MIB = 1 << 20
RECORD_BYTES = 1024
PRODUCER_SEED = 0
"""ProducerPerformance draws its values from SplittableRandom(0); it has no option for that."""

PROXY = "proxy"
DIRECT = "direct"
NATIVE = "native"
TLS = "tls"
"""As `proxy`, with TLS between client and proxy, and the same topic."""
VARIANTS = (PROXY, DIRECT, NATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One topic layout read with one fetch size (`max.partition.fetch.bytes`)."""

    partitions: int
    fetch_bytes: int

    @property
    def name(self) -> str:
        return f"{self.partitions} part., {self.fetch_bytes // MIB} MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line chooses; sizes in MiB of values. `warm`: the service keeps its caches.
    `batches_of_one`: each batch has one record. `workers`: `proxy.workers` of the service.
    """

    size_mib: int
    segment_mib: int
    passes: int
    partitions: tuple[int, ...]
    fetch_mib: tuple[int, ...]
    variants: tuple[str, ...]
    warm_up: bool
    jvm: str
    warm: bool = False
    batches_of_one: bool = False
    workers: int = 0

    @classmethod
    def full(cls) -> Self:
        """The numbers that count."""
        return cls(
            size_mib=1024,
            segment_mib=16,
            passes=5,
            partitions=(8, 1),
            fetch_mib=(1, 16),
            variants=VARIANTS,
            warm_up=True,
            jvm="full",
        )

    @classmethod
    def quick(cls) -> Self:
        """Proof within a minute that the benchmark works; its numbers mean nothing."""
        return cls(
            size_mib=32,
            segment_mib=1,
            passes=1,
            partitions=(8,),
            fetch_mib=(1,),
            variants=VARIANTS,
            warm_up=False,
            jvm="quick",
        )

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(
            Shape(partitions=partitions, fetch_bytes=fetch * MIB)
            for partitions in self.partitions
            for fetch in self.fetch_mib
        )

    def records(self, partitions: int) -> int:
        """Records of a topic; one partition alone gets half of the data."""
        size_bytes = self.size_mib * MIB // (2 if partitions == 1 else 1)
        return size_bytes // RECORD_BYTES

    def topics(self) -> Iterator[tuple[str, int]]:
        """(variant, partitions) of every topic that is needed."""
        for partitions in self.partitions:
            for variant in self.variants:
                if variant != TLS:
                    yield variant, partitions


def topic_name(variant: str, partitions: int) -> str:
    return f"bench-{PROXY if variant == TLS else variant}-{partitions}"


def order_of(variants: tuple[str, ...], pass_number: int) -> tuple[str, ...]:
    """The variants of one pass: each is first, second and last equally often."""
    first = pass_number % len(variants)
    return variants[first:] + variants[:first]
