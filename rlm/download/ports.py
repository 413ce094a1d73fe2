"""What a download needs of where the segments are: a narrow Protocol of plain values."""

from collections.abc import Sequence
from typing import Protocol

from kip405.segments import ByteRange
from rlm.download.plan import PartitionPlan, Piece

RANGE_BYTES = 8 << 20


class Source(Protocol):
    """A running service, or a store by itself. Errors are kip405's; retriable ones are retried."""

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """One plan a partition, ascending; NotFound for a topic that is not there."""
        ...

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        """The whole indexes object, unchecked."""
        ...

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        """A range of the log object, unchecked; at most RANGE_BYTES."""
        ...
