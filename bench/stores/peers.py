"""What a user would pick instead: figures of other software, measured elsewhere. Pure.

Kafka 4.3.0's own tiered storage with Aiven's plugin (May 2026) on minio, one node, heap 1 GiB,
2 shared cores, segments of 16 MiB, 1 KiB records, default fetches; November 2026. Another machine
and another hour: a ratio to them is for orientation. CPU is the broker's, which holds the
plugin; of several runs the range.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigure:
    """`best` is the highest of the runs, in MiB/s."""

    what: str
    partitions: int
    delay_ms: int
    mib_s: str
    cpu_s_gb: str
    best: float


PEER = "Kafka's own tiered storage with Aiven's plugin (measured elsewhere)"
READS = (
    PeerFigure(
        what="memory cache",
        partitions=8,
        delay_ms=0,
        mib_s="106-142",
        cpu_s_gb="8.6-10.8",
        best=142,
    ),
    PeerFigure(
        what="disk cache, cold",
        partitions=8,
        delay_ms=0,
        mib_s="159-173",
        cpu_s_gb="5.7-7.2",
        best=173,
    ),
    PeerFigure(
        what="memory cache",
        partitions=1,
        delay_ms=0,
        mib_s="128-182",
        cpu_s_gb="3.9-7.8",
        best=182,
    ),
    PeerFigure(
        what="memory cache, pool 2",
        partitions=8,
        delay_ms=100,
        mib_s="38-39",
        cpu_s_gb="10.0-17.4",
        best=39,
    ),
    PeerFigure(
        what="memory cache, pool 16",
        partitions=8,
        delay_ms=100,
        mib_s="89-118",
        cpu_s_gb="7.0-7.8",
        best=118,
    ),
    PeerFigure(
        what="memory cache, pool 16",
        partitions=1,
        delay_ms=100,
        mib_s="38-70",
        cpu_s_gb="6.9-15.8",
        best=70,
    ),
)
GETS_PER_GIB = "320-456"
COPY = "copy of a backlog, 8 partitions: 99-113 MB/s, broker 5.8-8.9 CPU s/GB"


def best_read(partitions: int, delay_ms: int) -> PeerFigure | None:
    """The best of a kind of read, None where none was measured."""
    rows = [one for one in READS if (one.partitions, one.delay_ms) == (partitions, delay_ms)]
    return max(rows, key=lambda one: one.best, default=None)
