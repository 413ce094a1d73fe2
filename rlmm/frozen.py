"""What a reader of the ledger knows at one time, as values that later records do not change. Pure.

`replay` makes them and goes on from them, `snapshot` writes and reads them.
"""

from dataclasses import dataclass

from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlmm.packed import Stamp
from rlmm.records import PartitionDeleteRecord
from rlmm.segment_store import Segments


@dataclass(slots=True, kw_only=True)
class KeyKnowledge:
    """What one reader knows of a segment; never changed."""

    newest: Stamp
    lawful: Stamp | None
    certain: bool
    """Every record of the key was seen, from the first one on."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPartition:
    """Everything that a reader knew of one user partition at one time."""

    key: PartitionKey
    segments: Segments
    newest_epoch: int
    version: int
    deletion: PartitionDeleteRecord | None
    unusual: tuple[KeyKnowledge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLedger:
    """Everything that a reader knew of one ledger partition at one time. `tombstones`: raw segment
    ids of the unusual ones that are to be forgotten, in this order.
    """

    partitions: tuple[FrozenPartition, ...]
    topics: tuple[TopicIdPartition, ...]
    writers: tuple[Uuid, ...]
    next_offset: int
    contiguous_since: int
    absence_is_known: bool
    tombstones: tuple[tuple[PartitionKey, bytes], ...]
