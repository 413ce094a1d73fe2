"""Cases about reading ranges of a log, at every edge and concurrently."""

import asyncio
import os

from kip405.errors import NotFound
from kip405.segments import ByteRange, SegmentLocator
from rsm_plugins.conformance.subject import MIB, StoredSegment, Subject, check, check_equal, fails

RANDOM_RANGES = 30
READERS = 8
_FAR = 2**62


async def range_in_the_middle(subject: Subject) -> None:
    """Part of a log that neither begins nor ends with it (Aiven: testFetchWithOffsetRange)."""
    segment = await _copied(subject)
    await _range_is_right(subject, segment, 1_000, 9_000)


async def single_bytes(subject: Subject) -> None:
    """One byte at a time: the first, one within, the last (Aiven: testFetchSingleByte)."""
    segment = await _copied(subject)
    for position in (0, 2, len(segment.log) - 1):
        await _range_is_right(subject, segment, position, position + 1)


async def range_past_the_end_is_clipped(subject: Subject) -> None:
    """A range that ends after the end of the log is clipped to it (Aiven:
    testFetchWithOffsetRangeLargerThanFileSize).
    """
    segment = await _copied(subject)
    size = len(segment.log)
    for start in (0, 2, size - 1):
        for end in (size + 1, 2 * size, _FAR):
            await _range_is_right(subject, segment, start, end)


async def range_outside_is_empty(subject: Subject) -> None:
    """A range that begins at the end or after it has no bytes and is no error (Aiven:
    testFetchWithRangeOutsideFileSize, which expects an error; Kafka's readers ask at the end).
    """
    segment = await _copied(subject)
    size = len(segment.log)
    for start in (size, size + 1, 2 * size, _FAR):
        check_equal(await subject.fetch(segment.locator, start, start + 10), b"", f"from {start}")


async def empty_ranges_are_empty(subject: Subject) -> None:
    """A range without bytes is empty at 0, within and at the end; of an absent log it is
    NotFound.
    """
    segment = await _copied(subject)
    for position in (0, 1, len(segment.log) - 1, len(segment.log)):
        check_equal(
            await subject.fetch(segment.locator, position, position), b"", f"0 bytes at {position}"
        )
    absent = subject.locator(subject.partition())
    call = subject.manager.fetch_log_segment(absent, ByteRange(start=0, end=0))
    await fails(NotFound, call, "an empty range of an absent log")


async def ranges_are_clipped(subject: Subject) -> None:
    """Every edge of a range, around the ends of the object and of a message."""
    segment = subject.segment(log_size_bytes=2 * MIB + 5)
    await subject.copy(segment)
    size = len(segment.log)
    edges = (0, 1, MIB - 1, MIB, MIB + 1, size - 1, size, size + 1, 2 * size, 2**40)
    for start in edges:
        for end in (edge for edge in edges if edge >= start):
            await _range_is_right(subject, segment, start, end)


async def ranges_across_part_borders(subject: Subject) -> None:
    """A log that the store may keep in parts reads as one piece (Pulsar: testOffloadAndRead,
    three blocks).
    """
    part = subject.part_bytes
    segment = subject.segment(log_size_bytes=2 * part + 7)
    await subject.complete(segment)
    for border in (part, 2 * part):
        for start, end in ((-1, 0), (-1, 1), (0, 1), (-100_000, 100_000)):
            await _range_is_right(subject, segment, border + start, border + end)
    await _range_is_right(subject, segment, 0, _FAR)


async def random_ranges(subject: Subject) -> None:
    """Ranges in no order (Pulsar: testOffloadReadRandomAccess; BlobStoreBackedInputStreamTest's
    random seeks).
    """
    segment = subject.segment(log_size_bytes=3 * MIB)
    await subject.copy(segment)
    for _ in range(RANDOM_RANGES):
        start, end = sorted(_random_below(3 * MIB + 1) for _ in range(2))
        await _range_is_right(subject, segment, start, end)


async def read_again_after_the_end(subject: Subject) -> None:
    """A reader that reached the end can read any range again (Pulsar: testReadEOFException)."""
    segment = await _copied(subject)
    size = len(segment.log)
    for start in (0, size, 0, size - 1, size, 5):
        await _range_is_right(subject, segment, start, size)


async def readers_at_once(subject: Subject) -> None:
    """Readers of one log at different positions do not disturb each other (apache/pulsar#18723)."""
    segment = subject.segment(log_size_bytes=4 * MIB)
    await subject.copy(segment)

    async def read(number: int) -> None:
        for step in range(8):
            start = (number * 7 + step * 3) % 16 * (MIB // 4)
            await _range_is_right(subject, segment, start, start + MIB // 3)

    await asyncio.gather(*(read(number) for number in range(READERS)))


async def absent_objects_are_not_found(subject: Subject) -> None:
    """Every read of an object that was never stored is NotFound, and the error names the segment
    and no secret (Aiven: testFetchFailWhenNonExistingKey, testFetchNonExistingKey,
    testFetchNonExistingKeyMasking).
    """
    locator = subject.locator(subject.partition())
    manager = subject.manager
    calls = {
        "log": manager.fetch_log_segment(locator, ByteRange(start=0, end=10)),
        "range of the log": manager.fetch_log_segment(locator, ByteRange(start=5, end=6)),
        "indexes": manager.fetch_indexes(locator),
        "manifest": manager.read_manifest(locator),
    }
    for what, call in calls.items():
        error = await fails(NotFound, call, f"{what} that was never stored")
        _names_the_segment(subject, locator, str(error), what)


def _names_the_segment(subject: Subject, locator: SegmentLocator, text: str, what: str) -> None:
    check(str(locator.segment_id.id) in text, f"the error about the {what} names no segment")
    check(
        not any(secret in text for secret in subject.secrets), f"the {what}'s error shows a secret"
    )


async def _copied(subject: Subject) -> StoredSegment:
    segment = subject.segment()
    await subject.copy(segment)
    return segment


async def _range_is_right(subject: Subject, segment: StoredSegment, start: int, end: int) -> None:
    found = await subject.fetch(segment.locator, start, end)
    wanted = segment.log[start:end]
    check_equal(len(found), len(wanted), f"size of the range {start}..{end}")
    check(found == wanted, f"the range {start}..{end} has other bytes")


def _random_below(limit: int) -> int:
    return int.from_bytes(os.urandom(8)) % limit


CASES = (
    range_in_the_middle,
    single_bytes,
    range_past_the_end_is_clipped,
    range_outside_is_empty,
    empty_ranges_are_empty,
    ranges_are_clipped,
    ranges_across_part_borders,
    random_ranges,
    read_again_after_the_end,
    readers_at_once,
    absent_objects_are_not_found,
)
