"""Cases about storing, fetching and removing the objects of one segment."""

import asyncio
from dataclasses import replace

from kip405.contracts import IndexType, Presence
from kip405.crc import crc32c
from kip405.errors import Corrupt, Fenced, Invalid, NotFound
from kip405.indexes import build_indexes_object
from kip405.segments import ByteRange, CustomMetadata, FileSlice, LogSegmentData
from rsm_plugins.conformance.subject import (
    SECTIONS,
    StoredSegment,
    Subject,
    check,
    check_equal,
    fails,
    read_answer,
)
from rsm_plugins.manifest import MANIFEST_MAX_BYTES

MIB = 1024 * 1024


async def copied_bytes_come_back(subject: Subject) -> None:
    """Log and indexes come back as they were; more than one message's worth."""
    segment = subject.segment(log_size_bytes=3 * MIB + 1)
    await subject.copy(segment)
    check_equal(await subject.fetch(segment.locator, 0, len(segment.log)), segment.log, "log")
    check_equal(
        await subject.manager.fetch_indexes(segment.locator), segment.data.indexes, "indexes"
    )


async def empty_log_is_an_object(subject: Subject) -> None:
    segment = subject.segment(log_size_bytes=0)
    await subject.complete(segment)
    check_equal(await subject.fetch(segment.locator, 0, 10), b"", "an empty log")
    check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "presence")


async def large_indexes_come_back(subject: Subject) -> None:
    """An indexes object larger than any message."""
    sections = {**SECTIONS, IndexType.OFFSET: bytes(8) * (5 * MIB // 8)}
    segment = subject.segment(sections=sections)
    await subject.copy(segment)
    check_equal(
        await subject.manager.fetch_indexes(segment.locator), segment.data.indexes, "indexes"
    )


async def ranges_are_clipped(subject: Subject) -> None:
    """Every edge of a range, around the ends of the object and of a message."""
    segment = subject.segment(log_size_bytes=2 * MIB + 5)
    await subject.copy(segment)
    size = len(segment.log)
    edges = (0, 1, MIB - 1, MIB, MIB + 1, size - 1, size, size + 1, 2 * size, 2**40)
    for start in edges:
        for end in (edge for edge in edges if edge >= start):
            found = await subject.fetch(segment.locator, start, end)
            check_equal(
                len(found), len(segment.log[start:end]), f"size of the range {start}..{end}"
            )
            check(found == segment.log[start:end], f"the range {start}..{end} has other bytes")


async def manifest_comes_last(subject: Subject) -> None:
    """Without manifest a segment is incomplete and says so; with it, complete."""
    segment = subject.segment()
    await fails(
        NotFound, subject.manager.read_manifest(segment.locator), "manifest before the copy"
    )
    await subject.copy(segment)
    found = await subject.presence(segment)
    check_equal((found.presence, found.manifest_present), (Presence.MISSING, False), "no manifest")
    manifest = b'{"v":1,"kind":"segment"}'
    await subject.manager.write_manifest(segment.locator, manifest)
    check_equal(await subject.manager.read_manifest(segment.locator), manifest, "manifest")
    found = await subject.presence(segment)
    check_equal((found.presence, found.manifest_present), (Presence.COMPLETE, True), "complete")


async def manifest_has_limits(subject: Subject) -> None:
    locator = subject.locator(subject.partition())
    await fails(Invalid, subject.manager.write_manifest(locator, b""), "an empty manifest")
    large = b"x" * (MANIFEST_MAX_BYTES + 1)
    await fails(Invalid, subject.manager.write_manifest(locator, large), "a manifest over 1 MiB")
    await subject.manager.write_manifest(locator, large[:-1])
    check_equal(await subject.manager.read_manifest(locator), large[:-1], "a manifest of 1 MiB")


async def copy_may_be_repeated(subject: Subject) -> None:
    """What is there under the same locator is overwritten."""
    segment = subject.segment()
    await subject.complete(segment)
    again = subject.segment(log_size_bytes=len(segment.log) + 100)
    await subject.manager.copy_log_segment_data(segment.locator, again.data)
    check_equal(
        await subject.fetch(segment.locator, 0, 2**40), again.log, "log after the second copy"
    )


async def copies_of_one_segment_at_once(subject: Subject) -> None:
    segment = subject.segment(log_size_bytes=MIB)
    await asyncio.gather(*(subject.copy(segment) for _ in range(6)))
    await subject.manager.write_manifest(segment.locator, b"{}")
    check_equal(
        await subject.fetch(segment.locator, 0, MIB), segment.log, "log after copies at once"
    )
    check_equal(
        len(await subject.names(segment.locator.segment_id.topic_id_partition)), 3, "objects"
    )


async def flipped_bits_are_found_at_copy(subject: Subject) -> None:
    """Bytes that do not have the CRC-32C given are refused, and nothing of them is visible."""
    segment = subject.segment()
    wrong_log = replace(segment.data, log_crc32c=segment.data.log_crc32c ^ 1)
    await fails(Corrupt, _copy(subject, segment, wrong_log), "a log with another checksum")
    wrong_indexes = replace(segment.data, indexes_crc32c=segment.data.indexes_crc32c ^ 1)
    await fails(Corrupt, _copy(subject, segment, wrong_indexes), "indexes with another checksum")
    await _nothing_visible(subject, segment)


async def source_that_changed_is_fenced(subject: Subject) -> None:
    """A file that is gone or was cut short drops the plan, and nothing is visible."""
    segment = subject.segment()
    cut = replace(
        segment.data, log=FileSlice(path=segment.data.log.path, position=6, size_bytes=10**6)
    )
    await fails(Fenced, _copy(subject, segment, cut), "a file that was cut short")
    gone = replace(
        segment.data, log=FileSlice(path=f"{cut.log.path}.gone", position=0, size_bytes=1)
    )
    await fails(Fenced, _copy(subject, segment, gone), "a file that is gone")
    await _nothing_visible(subject, segment)


async def cancelled_copy_is_invisible(subject: Subject) -> None:
    """A copy whose caller gave up is whole or not there at all."""
    segment = subject.segment(log_size_bytes=16 * MIB)
    for delay in (0.0, 0.001, 0.01):
        try:
            async with asyncio.timeout(delay):
                await subject.copy(segment)
        except TimeoutError:
            pass
        try:
            found = await subject.fetch(segment.locator, 0, 2**40)
        except NotFound:
            continue
        check(found == segment.log, "a cancelled copy left a part of the log visible")


async def delete_may_be_repeated(subject: Subject) -> None:
    segment = subject.segment()
    await subject.manager.delete_log_segment_data(segment.locator)
    await subject.complete(segment)
    for _ in range(3):
        await subject.manager.delete_log_segment_data(segment.locator)
    await _nothing_visible(subject, segment)
    await fails(
        NotFound, subject.manager.fetch_indexes(segment.locator), "indexes after the delete"
    )
    await fails(
        NotFound, subject.manager.read_manifest(segment.locator), "manifest after the delete"
    )


async def deletes_and_copies_beside_each_other(subject: Subject) -> None:
    """Deleting one segment of a partition never disturbs another that is being copied there."""
    partition = subject.partition("busy")
    for start_offset in range(0, 50, 10):
        old = subject.segment(partition, start_offset=start_offset, log_size_bytes=100)
        new = subject.segment(partition, start_offset=start_offset + 5, log_size_bytes=100)
        await subject.complete(old)
        await asyncio.gather(
            subject.manager.delete_log_segment_data(old.locator), subject.complete(new)
        )
        check_equal((await subject.presence(new)).presence, Presence.COMPLETE, "the one copied")
        await subject.manager.delete_log_segment_data(new.locator)


async def delete_during_read(subject: Subject) -> None:
    """A reader gets the bytes or NotFound, never others."""
    segment = subject.segment(log_size_bytes=4 * MIB)
    await subject.complete(segment)

    async def read() -> bytes | None:
        whole = ByteRange(start=0, end=4 * MIB)
        try:
            return read_answer(await subject.manager.fetch_log_segment(segment.locator, whole))
        except (NotFound, FileNotFoundError):
            return None

    readers = [read() for _ in range(10)]
    found = await asyncio.gather(*readers[:5], _delete(subject, segment), *readers[5:])
    check(all(data in (None, segment.log) for data in found), "a reader got other bytes")


async def index_types(subject: Subject) -> None:
    """Each section comes back; an absent one is NotFound; an absent object too."""
    segment = subject.segment()
    await fails(
        NotFound, subject.manager.fetch_index(segment.locator, IndexType.OFFSET), "no object"
    )
    await subject.copy(segment)
    for index_type, section in SECTIONS.items():
        found = await subject.manager.fetch_index(segment.locator, index_type)
        check_equal(found, section, index_type.name)
    absent = subject.manager.fetch_index(segment.locator, IndexType.TRANSACTION)
    await fails(NotFound, absent, "the transaction index of a segment without one")


async def damaged_section_is_corrupt(subject: Subject) -> None:
    """A section with a flipped bit is not answered; the error names the object."""
    segment = subject.segment()
    damaged = bytearray(build_indexes_object(SECTIONS))
    damaged[-1] ^= 1
    data = replace(segment.data, indexes=bytes(damaged), indexes_crc32c=crc32c(bytes(damaged)))
    await _copy(subject, segment, data)
    call = subject.manager.fetch_index(segment.locator, IndexType.ABORTED_TRANSACTIONS)
    error = await fails(Corrupt, call, "a section with a flipped bit")
    check(
        str(segment.locator.segment_id.id) in str(error),
        f"the error does not name the object: {error}",
    )


async def entropy_digits_lead_the_name(subject: Subject) -> None:
    """A segment whose custom metadata has entropy bits is stored, listed and removed below the
    digits.
    """
    partition = subject.partition("entropy")
    custom = CustomMetadata(store_id=subject.new_uuid(), entropy_bits=5).encode()
    segment = subject.segment(partition, custom_metadata=custom)
    plain = subject.segment(partition, start_offset=7)
    await subject.complete(segment)
    await subject.complete(plain)
    names = await subject.names(partition)
    check_equal(len(names), 6, "objects of the partition")
    check_equal(names, sorted(names), "order of the names")
    with_digits = [name for name in names if name.split("/")[1] == subject.cluster_id]
    check_equal(len(with_digits), 3, "objects below entropy digits")
    check_equal(await subject.fetch(segment.locator, 0, 2**40), segment.log, "log")
    await subject.manager.delete_log_segment_data(segment.locator)
    check_equal(len(await subject.names(partition)), 3, "objects after the delete")


async def _copy(subject: Subject, segment: StoredSegment, data: LogSegmentData) -> bytes:
    return await subject.manager.copy_log_segment_data(segment.locator, data)


async def _delete(subject: Subject, segment: StoredSegment) -> None:
    await subject.manager.delete_log_segment_data(segment.locator)


async def _nothing_visible(subject: Subject, segment: StoredSegment) -> None:
    found = await subject.presence(segment)
    check_equal((found.presence, found.manifest_present), (Presence.MISSING, False), "presence")
    check_equal(await subject.names(segment.locator.segment_id.topic_id_partition), [], "objects")
    whole = subject.manager.fetch_log_segment(segment.locator, ByteRange(start=0, end=1))
    await fails(NotFound, whole, "log of a segment that is not there")


CASES = (
    copied_bytes_come_back,
    empty_log_is_an_object,
    large_indexes_come_back,
    ranges_are_clipped,
    manifest_comes_last,
    manifest_has_limits,
    copy_may_be_repeated,
    copies_of_one_segment_at_once,
    flipped_bits_are_found_at_copy,
    source_that_changed_is_fenced,
    cancelled_copy_is_invisible,
    delete_may_be_repeated,
    deletes_and_copies_beside_each_other,
    delete_during_read,
    index_types,
    damaged_section_is_corrupt,
    entropy_digits_lead_the_name,
)
