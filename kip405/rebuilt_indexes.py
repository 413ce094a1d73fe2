"""Builds the indexes of a segment from its batches, as a broker does that has lost the files.

Feed the headers of all batches of a partition in order, segment by segment. Transactions span
segments: an aborted one is known with its marker, which may be in a later segment (H9). So the
state of producers goes on from one segment to the next, and a segment's aborted list is complete
once nothing that began in it is open. Pure. Sources: LogSegment.recover, ProducerStateManager.
"""

import struct

from kip405.batches import BatchHeader
from kip405.errors import Corrupt
from kip405.indexes import AbortedTransaction, TransactionIndexEntry, encode_transaction_index

INDEX_INTERVAL_BYTES = 4096
"""Default of index.interval.bytes."""

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_RELATIVE_MAX = 2**31 - 1


class IndexBuilder:
    """Offset and time index of one segment."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._offsets = bytearray()
        self._times = bytearray()
        self._indexed_up_to = 0
        self._latest_ms = -1
        self._latest_at = base_offset
        self._written_ms = -1

    def add(self, position: int, header: BatchHeader) -> None:
        """The next batch and its position in the file; Corrupt if its offset fits no index."""
        if header.last_offset - self._base_offset > _RELATIVE_MAX:
            raise Corrupt(f"offset {header.last_offset} is too far from {self._base_offset}")
        if header.max_timestamp_ms > self._latest_ms:
            self._latest_ms, self._latest_at = header.max_timestamp_ms, header.last_offset
        if position - self._indexed_up_to > INDEX_INTERVAL_BYTES:
            self._offsets += _OFFSET_ENTRY.pack(header.last_offset - self._base_offset, position)
            self._add_time()
            self._indexed_up_to = position

    def _add_time(self) -> None:
        if self._latest_ms > self._written_ms:
            self._times += _TIME_ENTRY.pack(self._latest_ms, self._latest_at - self._base_offset)
            self._written_ms = self._latest_ms

    def finish(self) -> tuple[bytes, bytes]:
        """The offset index and the time index; all batches were added."""
        self._add_time()
        return bytes(self._offsets), bytes(self._times)


class TransactionTracker:
    """Which transactions are open, and which were aborted, of one partition from its first batch.

    A transaction that began before the first batch counts from the first batch that was seen of it.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ended: list[TransactionIndexEntry] = []

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began; None = none is open."""
        return min(self._open.values(), default=None)

    def data(self, header: BatchHeader) -> None:
        """A batch of a transaction that is no marker."""
        self._open.setdefault(header.producer_id, header.base_offset)

    def marker(self, header: BatchHeader, *, is_abort: bool) -> None:
        """The end of a transaction. A marker of a producer without records in this partition ends
        nothing.
        """
        first = self._open.pop(header.producer_id, None)
        if first is None or not is_abort:
            return
        stable = min(self._open.values(), default=header.last_offset + 1)
        aborted = AbortedTransaction(header.producer_id, first, header.last_offset)
        self._ended.append(TransactionIndexEntry(aborted, stable))

    def transaction_index(self, start: int, next_offset: int) -> bytes:
        """The .txnindex of a segment with these offsets: the transactions whose abort is in it.
        Segments may overlap; a marker that several have is in the index of each.
        """
        return encode_transaction_index(
            one for one in self._ended if start <= one.aborted.last_offset < next_offset
        )

    def aborted_in(self, start: int, next_offset: int) -> tuple[AbortedTransaction, ...]:
        """All that touch the offsets, in the order of their markers; complete once no transaction
        is open that began below `next_offset`.
        """
        return tuple(
            one.aborted
            for one in self._ended
            if one.aborted.last_offset >= start and one.aborted.first_offset < next_offset
        )

    def forget_below(self, offset: int) -> None:
        """Transactions that ended below the offset are asked for no more."""
        self._ended = [one for one in self._ended if one.aborted.last_offset >= offset]
