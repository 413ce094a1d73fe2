"""Compares two logs that have the same offsets: their bytes there must be the same.

Replicas begin segments at different offsets, so after a change of leaders their uploader may leave
a log that begins inside the one before it:

    one    |--------------------|            `begins`: where, in bytes
    other            |==========|-------|    it goes on with the second one
    other            |======|                a copy, which is passed over

Both are read in ranges. Logs that differ are of two histories, or one was replaced.
"""

from kip405.batches import BatchHeader
from kip405.errors import Invalid
from kip405.rebuilt_indexes import TransactionTracker
from kip405.scan import SegmentScanner
from kip405.segments import ByteRange
from rlm.imports.scanned import READ_BYTES, LogReading, Readable, read_piece
from rlm.plans.pinterest_import import UploadedLog


async def is_copy(
    objects: Readable,
    one: UploadedLog,
    one_name: str,
    other: UploadedLog,
    other_name: str,
    begins: int | None,
) -> bool:
    """Whether `other`, which begins inside `one`, ends in it too. `one` was checked. Invalid: they
    differ; Corrupt: `other` is a copy that was cut short. What reaches beyond is not read.
    """
    if begins is None:
        raise Invalid(
            f"the logs at {one.base_offset} and {other.base_offset} differ from offset "
            f"{other.base_offset} on: no batch of the first one begins there"
        )
    shared_bytes = min(one.size_bytes - begins, other.size_bytes)
    for start in range(0, shared_bytes, READ_BYTES):
        end = min(start + READ_BYTES, shared_bytes)
        first = await read_piece(
            objects, one_name, ByteRange(start=begins + start, end=begins + end)
        )
        second = await read_piece(objects, other_name, ByteRange(start=start, end=end))
        if first != second:
            at = begins + start + _first_difference(memoryview(first), memoryview(second))
            offset = await _offset_at(objects, one, one_name, begins, at)
            raise Invalid(
                f"the logs at {one.base_offset} and {other.base_offset} differ from offset "
                f"{offset} on: they are of two histories, or one was replaced"
            )
    if other.size_bytes > shared_bytes:
        return False
    await LogReading(other, TransactionTracker()).read(objects, other_name)
    return True


def _first_difference(one: memoryview, other: memoryview) -> int:
    """The first position at which two unequal pieces of one length differ."""
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


async def _offset_at(
    objects: Readable, log: UploadedLog, name: str, begins: int, position: int
) -> int:
    """The base offset of the batch with this byte, of a log that was checked. `begins`: where a
    batch does, at or before the byte.
    """
    found = log.base_offset

    def on_batch(at: int, header: BatchHeader) -> None:
        nonlocal found
        if begins + at <= position:
            found = header.base_offset

    scanner = SegmentScanner(base_offset=log.base_offset, on_batch=on_batch)
    for start in range(begins, log.size_bytes, READ_BYTES):
        end = min(start + READ_BYTES, log.size_bytes)
        scanner.feed(await read_piece(objects, name, ByteRange(start=start, end=end)))
    return found
