"""What a user would pick instead: figures of other software, measured elsewhere. Pure.

Kafka 4.3.0's own tiered storage with Aiven's plugin (May 2026) on minio, one node, heap 1 GiB,
2 shared cores, segments of 16 MiB, 1 KiB records; November 2026. Another machine and another hour:
a ratio to them is for orientation. CPU is the broker's, which holds the plugin; of several runs the
range. All reads of that measurement are here, so what is above the best of a kind is above each.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigure:
    """In MiB/s; `warm`: all of it in the plugin's cache on disk. `pool`: its requests at a time."""

    what: str
    partitions: int
    delay_ms: int
    mib_s: str
    cpu_s_gb: str
    fetch_mib: int = 1
    warm: bool = False

    @property
    def best(self) -> float:
        """The highest of the runs."""
        return float(self.mib_s.rpartition("-")[2])


PEER = "Kafka's own tiered storage with Aiven's plugin (measured elsewhere)"
_MEMORY, _DISK, _HEAP = "memory cache", "disk cache, cold", "memory cache, heap 4 GiB"
_ROWS = (
    (_MEMORY, 8, 0, 1, "106-142", "8.6-10.8"),
    (_MEMORY, 1, 0, 1, "128-182", "3.9-7.8"),
    (_DISK, 8, 0, 1, "159-173", "5.7-7.2"),
    (_DISK, 1, 0, 1, "104-156", "5.2-10.2"),
    (_HEAP, 8, 0, 1, "123-150", "5.7-8.4"),
    (_HEAP, 1, 0, 1, "74-115", "7.0-15.0"),
    (_MEMORY, 8, 0, 16, "83-84", "11.9"),
    (_MEMORY, 1, 0, 16, "132-185", "4.6-8.4"),
    (_DISK, 8, 0, 16, "70", "15.4"),
    (_DISK, 1, 0, 16, "124", "8.1"),
    (_HEAP, 8, 0, 16, "76", "11.7"),
    ("memory cache, pool 2", 8, 100, 1, "38-39", "10.0-17.4"),
    ("memory cache, pool 2", 1, 100, 1, "37-52", "8.2-11.7"),
    ("memory cache, pool 2", 8, 100, 16, "35", "19.4"),
    ("memory cache, pool 2", 1, 100, 16, "42", "13.7"),
    ("memory cache, pool 16", 8, 100, 1, "89-118", "7.0-7.8"),
    ("memory cache, pool 16", 1, 100, 1, "38-70", "6.9-15.8"),
    ("disk cache, cold, pool 2", 8, 100, 1, "44", "6.7"),
    ("disk cache, cold, pool 2", 1, 100, 1, "35", "11.8"),
)
READS = (
    *(
        PeerFigure(
            what=what,
            partitions=partitions,
            delay_ms=delay_ms,
            fetch_mib=fetch_mib,
            mib_s=mib_s,
            cpu_s_gb=cpu_s_gb,
        )
        for what, partitions, delay_ms, fetch_mib, mib_s, cpu_s_gb in _ROWS
    ),
    PeerFigure(
        what="disk cache, warm",
        partitions=8,
        delay_ms=0,
        mib_s="280-306",
        cpu_s_gb="2.6-2.8",
        warm=True,
    ),
    PeerFigure(
        what="disk cache, warm", partitions=1, delay_ms=0, mib_s="228", cpu_s_gb="2.4", warm=True
    ),
)
GETS_PER_GIB = "320-456"
COPY = "copy of a backlog, 8 partitions: 99-113 MB/s, broker 5.8-8.9 CPU s/GB"


def best_read(
    partitions: int, delay_ms: int, fetch_mib: int = 1, *, warm: bool = False
) -> PeerFigure | None:
    """The best of a kind of read, None where none was measured."""
    kind = (partitions, delay_ms, fetch_mib, warm)
    rows = [one for one in READS if (one.partitions, one.delay_ms, one.fetch_mib, one.warm) == kind]
    return max(rows, key=lambda one: one.best, default=None)
