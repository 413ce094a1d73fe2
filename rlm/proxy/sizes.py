"""Divides the bytes of a Fetch answer among its partitions, in request order. Pure.

A client plans its memory by max_bytes and partition_max_bytes, whichever tier gives the bytes, and
must make progress where one batch is larger than both (KIP-74). The rule is the broker's
(ReplicaManager.readFromLog, LogSegment.read), applied to both tiers. This module must not know
tiers.
"""

import struct
from dataclasses import dataclass

from kafka_protocol.primitives import Buffer

_LENGTH = struct.Struct(">8xi")
_LOG_OVERHEAD_BYTES = 12


@dataclass(slots=True)
class AnswerRoom:
    """The room left in one answer; `is_empty` holds until a partition gave the first bytes."""

    left_bytes: int
    is_empty: bool = True

    def limit(self, partition_max_bytes: int) -> int:
        """Bytes that the next partition may have, but for the one batch of an empty answer."""
        return max(0, min(partition_max_bytes, self.left_bytes))

    def allowed(self, partition_max_bytes: int, size_bytes: int, first_batch_bytes: int) -> int:
        """How many of `size_bytes` bytes are given: all, less, or none.

        An empty answer takes the first batch whole, whatever the limits. Otherwise records end at
        the limit, in the middle of a batch as a broker's do, and none are given where not even the
        first batch would be whole.
        """
        limit = self.limit(partition_max_bytes)
        if self.is_empty:
            limit = max(limit, first_batch_bytes)
        if size_bytes <= limit:
            return size_bytes
        return limit if first_batch_bytes <= limit else 0

    def take(self, size_bytes: int) -> None:
        """Count what a partition gave, or would have given if more of it had been at hand."""
        if size_bytes > 0:
            self.is_empty = False
        self.left_bytes = max(0, self.left_bytes - size_bytes)


def first_batch_bytes(records: Buffer) -> int:
    """Size of the first batch by its own header; 0 for none, more than there is for a cut one."""
    if len(records) < _LOG_OVERHEAD_BYTES:
        return len(records) + 1 if len(records) else 0
    (length,) = _LENGTH.unpack_from(records)
    return int(length) + _LOG_OVERHEAD_BYTES
