"""Cases about copies that fail, are cancelled, or run at once: each is whole or absent."""

import asyncio
from dataclasses import replace

from kip405.contracts import Presence
from kip405.crc import crc32c
from kip405.errors import Corrupt, Fenced, NotFound
from kip405.segments import FileSlice, LogSegmentData
from rsm_plugins.conformance.deletes import nothing_visible
from rsm_plugins.conformance.subject import (
    MIB,
    CaseSkipped,
    StoredSegment,
    Subject,
    check,
    check_equal,
    fails,
)


async def copy_may_be_repeated(subject: Subject) -> None:
    """Existing objects of the same locator are overwritten (Aiven:
    testRetryUploadKeepLatestVersion).
    """
    segment = subject.segment()
    await subject.complete(segment)
    for change in (100, -100):
        again = subject.segment(log_size_bytes=len(segment.log) + change)
        await subject.manager.copy_log_segment_data(segment.locator, again.data)
        check_equal(
            await subject.fetch(segment.locator, 0, 2**40), again.log, "log after another copy"
        )


async def copies_of_one_segment_at_once(subject: Subject) -> None:
    """Six concurrent copies of the same attempt leave one whole segment."""
    segment = subject.segment(log_size_bytes=MIB)
    await asyncio.gather(*(subject.copy(segment) for _ in range(6)))
    await subject.manager.write_manifest(segment.locator, b"{}")
    check_equal(
        await subject.fetch(segment.locator, 0, MIB), segment.log, "log after copies at once"
    )
    check_equal(
        len(await subject.names(segment.locator.segment_id.topic_id_partition)), 3, "objects"
    )


async def different_copies_of_one_segment_at_once(subject: Subject) -> None:
    """Two concurrent copies with different bytes under one locator leave one of them whole, and no
    mixture.
    """
    first, second = (subject.segment(log_size_bytes=MIB + n) for n in (1, 2))
    await asyncio.gather(
        *(
            subject.manager.copy_log_segment_data(first.locator, data)
            for data in (first.data, second.data, first.data, second.data)
        )
    )
    found = await subject.fetch(first.locator, 0, 2**40)
    check(found in (first.log, second.log), f"a mixture of {len(found)} bytes")


async def flipped_bits_are_found_at_copy(subject: Subject) -> None:
    """Bytes that do not have the CRC-32C given are refused, and nothing of them is visible (Pulsar:
    testOffloadFailDataBlockPartUpload, testOffloadFailPutIndexBlock).
    """
    segment = subject.segment()
    wrong_log = replace(segment.data, log_crc32c=segment.data.log_crc32c ^ 1)
    await fails(Corrupt, _copy(subject, segment, wrong_log), "a log with another checksum")
    wrong_indexes = replace(segment.data, indexes_crc32c=segment.data.indexes_crc32c ^ 1)
    await fails(Corrupt, _copy(subject, segment, wrong_indexes), "indexes with another checksum")
    await nothing_visible(subject, segment)
    await _repeat_works(subject, segment)


async def flipped_bits_in_parts_are_found_at_copy(subject: Subject) -> None:
    """The same where the store splits the log into parts: a bit of the last part counts too."""
    segment = subject.segment(log_size_bytes=2 * subject.part_bytes + 1)
    damaged = bytearray(segment.log)
    damaged[-1] ^= 1
    data = replace(segment.data, log_crc32c=crc32c(bytes(damaged)))
    await fails(Corrupt, _copy(subject, segment, data), "a large log with another checksum")
    await nothing_visible(subject, segment)


async def source_that_changed_is_fenced(subject: Subject) -> None:
    """A file that is gone or was cut short drops the plan, and nothing is visible."""
    segment = subject.segment()
    path = segment.data.log.path
    too_long = FileSlice(path=path, position=6, size_bytes=10**6)
    cut = replace(segment.data, log=too_long)
    await fails(Fenced, _copy(subject, segment, cut), "a file that was cut short")
    absent = FileSlice(path=f"{path}.gone", position=0, size_bytes=1)
    gone = replace(segment.data, log=absent)
    await fails(Fenced, _copy(subject, segment, gone), "a file that is gone")
    await nothing_visible(subject, segment)
    await _repeat_works(subject, segment)


async def large_source_cut_short_is_fenced(subject: Subject) -> None:
    """The same in the middle of a log that the store may already have parts of (Pulsar:
    testOffloadFailDataBlockUploadComplete).
    """
    segment = subject.segment(log_size_bytes=subject.part_bytes + 10)
    declared = FileSlice(
        path=segment.data.log.path,
        position=segment.data.log.position,
        size_bytes=2 * subject.part_bytes,
    )
    cut = replace(segment.data, log=declared)
    await fails(Fenced, _copy(subject, segment, cut), "a large file that was cut short")
    await nothing_visible(subject, segment)


async def cancelled_copy_is_invisible(subject: Subject) -> None:
    """A copy whose caller was cancelled is whole or not there at all, and a repeated copy works."""
    segment = subject.segment(log_size_bytes=16 * MIB)
    for delay in (0.0, 0.001, 0.01, 0.05):
        await give_up(subject, segment, delay)
        try:
            found = await subject.fetch(segment.locator, 0, 2**40)
        except NotFound:
            continue
        check(found == segment.log, "a cancelled copy left a part of the log visible")
    await _repeat_works(subject, segment)


async def broken_attempt_is_seen_and_removed(subject: Subject) -> None:
    """The objects of a writer that died before the manifest are listed, are never mistaken for a
    segment, and are removed by the locator in the ledger.
    """
    segment = subject.segment()
    await subject.copy(segment)
    partition = segment.locator.segment_id.topic_id_partition
    check_equal((await subject.presence(segment)).presence, Presence.MISSING, "presence")
    check_equal(len(await subject.names(partition)), 2, "objects of the broken attempt")
    again = subject.segment(partition)
    await subject.complete(again)
    await subject.manager.delete_log_segment_data(segment.locator)
    check_equal(len(await subject.names(partition)), 3, "objects of the attempt that succeeded")


async def leftovers_are_swept(subject: Subject) -> None:
    """The sweep removes what abandoned copies left, and nothing that is whole."""
    if subject.sweep is None:
        raise CaseSkipped("the sweep is called in the store's own process only")
    kept = subject.segment()
    await subject.complete(kept)
    before = None if subject.faults is None else subject.faults.names()
    segment = subject.segment(log_size_bytes=8 * MIB)
    for delay in (0.0, 0.005, 0.02):
        await give_up(subject, segment, delay)
    await subject.manager.delete_log_segment_data(segment.locator)
    await subject.sweep(0)
    check_equal(await subject.sweep(0), 0, "leftovers found by a second sweep")
    if subject.faults is not None:
        check_equal(subject.faults.names(), before, "objects and leftovers of the store")
    check_equal((await subject.presence(kept)).presence, Presence.COMPLETE, "the whole segment")


async def give_up(subject: Subject, segment: StoredSegment, seconds: float) -> None:
    """Begin a copy and cancel it after a while, unless it has ended before."""
    try:
        async with asyncio.timeout(seconds):
            await subject.copy(segment)
    except TimeoutError:
        pass


async def _repeat_works(subject: Subject, segment: StoredSegment) -> None:
    await subject.complete(segment)
    check_equal(await subject.fetch(segment.locator, 0, 2**40), segment.log, "log after a repeat")
    check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "after a repeat")


async def _copy(subject: Subject, segment: StoredSegment, data: LogSegmentData) -> bytes:
    return await subject.manager.copy_log_segment_data(segment.locator, data)


CASES = (
    copy_may_be_repeated,
    copies_of_one_segment_at_once,
    different_copies_of_one_segment_at_once,
    flipped_bits_are_found_at_copy,
    flipped_bits_in_parts_are_found_at_copy,
    source_that_changed_is_fenced,
    large_source_cut_short_is_fenced,
    cancelled_copy_is_invisible,
    broken_attempt_is_seen_and_removed,
    leftovers_are_swept,
)
