"""What a consumer has read from each tier; plain numbers that only grow.

They are changed in the event loop alone, so a reader on that loop sees them consistent. This module
must not know how records are read.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class TierCounters:
    """`records`: handed to the caller. `bytes_read`: of stored batches, as they were received."""

    records: int = 0
    bytes_read: int = 0


@dataclass(slots=True, kw_only=True)
class ConsumerCounters:
    """`remote`: of the remote tier by services; `store`: of the remote tier from the store itself.
    `failovers`: how often a partition went on in the other tier. `failed_reads`: reads of the
    remote tier that failed and were tried again. `offsets_missed`: offsets between two positions of
    a partition that no tier had (Pinterest's `offset.consumption.missed`).
    """

    kafka: TierCounters = field(default_factory=TierCounters)
    remote: TierCounters = field(default_factory=TierCounters)
    store: TierCounters = field(default_factory=TierCounters)
    failovers: int = 0
    failed_reads: int = 0
    offsets_missed: int = 0
