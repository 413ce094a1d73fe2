"""What the benchmark of stores runs: sizes, delays, passes. Pure."""

from dataclasses import dataclass
from typing import Self

from bench.plan import PROXY
from bench.plan import Options as ReadOptions

S3 = "s3"
HDFS = "hdfs"
STORES = (S3, HDFS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Sizes in MiB of values; `delays_ms` are of S3 only, added to every round trip.

    `size_mib` is the topic with 8 partitions, one partition alone gets half; `copy_mib` is each of
    the backlogs; `first_records` cold reads are timed per delay; `workers`: `proxy.workers`.
    `warm`: the service has a cache on disk, and all that is read is in it.
    """

    stores: tuple[str, ...]
    delays_ms: tuple[int, ...]
    partitions: tuple[int, ...]
    size_mib: int
    segment_mib: int
    passes: int
    first_records: int
    copy_pairs: int
    copy_mib: int
    warm_up: bool
    jvm: str
    workers: int = 0
    fetch_mib: tuple[int, ...] = (1,)
    warm: bool = False

    @classmethod
    def full(cls) -> Self:
        """The numbers that count."""
        return cls(
            stores=STORES,
            delays_ms=(0, 20, 100),
            partitions=(8, 1),
            size_mib=1024,
            segment_mib=16,
            passes=5,
            first_records=10,
            copy_pairs=5,
            copy_mib=512,
            warm_up=True,
            jvm="full",
        )

    @classmethod
    def quick(cls) -> Self:
        """Proof that the benchmark works; its numbers mean nothing."""
        return cls(
            stores=(S3,),
            delays_ms=(20,),
            partitions=(8,),
            size_mib=32,
            segment_mib=1,
            passes=1,
            first_records=2,
            copy_pairs=1,
            copy_mib=16,
            warm_up=False,
            jvm="quick",
        )

    def delays_of(self, store: str) -> tuple[int, ...]:
        return self.delays_ms if store == S3 else (0,)

    @property
    def read(self) -> ReadOptions:
        """The topics that are read, as bench/topics.py makes them."""
        return ReadOptions(
            size_mib=self.size_mib,
            segment_mib=self.segment_mib,
            passes=self.passes,
            partitions=self.partitions,
            fetch_mib=self.fetch_mib,
            variants=(PROXY,),
            warm_up=self.warm_up,
            jvm=self.jvm,
        )


def order_of_delays(delays_ms: tuple[int, ...], pass_number: int) -> tuple[int, ...]:
    """Each delay is first, second and last equally often."""
    first = pass_number % len(delays_ms)
    return delays_ms[first:] + delays_ms[:first]
