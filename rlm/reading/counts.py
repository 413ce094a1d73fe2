"""What the read path counts; `rlm_read_*` of the metrics are these."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ReadCounts:
    """Totals since the start; chunks are counted each time a read wants one."""

    memory_hits: int = 0
    joined: int = 0
    """Chunks wanted that were on their way already, mostly read ahead."""
    misses: int = 0
    disk_hits: int = 0
    ranges: int = 0
    range_bytes: int = 0
    ahead_bytes: int = 0
    indexes: int = 0
    refetches: int = 0
    """Ranges asked for again, past every cache, because of a wrong answer."""
