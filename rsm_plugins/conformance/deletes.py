"""Cases about removing segments: one, many, again, and beside readers and copies."""

import asyncio
from dataclasses import replace
from functools import partial

from kip405.contracts import Presence
from kip405.errors import ErrorKind, NotFound
from kip405.segments import ByteRange, CustomMetadata
from rsm_plugins.conformance.subject import (
    MIB,
    StoredSegment,
    Subject,
    check,
    check_equal,
    fails,
    in_parts,
    read_answer,
)


async def upload_fetch_delete(subject: Subject) -> None:
    """A segment is stored, read and deleted, and nothing of it is left (Aiven:
    testUploadFetchDelete; Pulsar: testHappyCase).
    """
    segment = subject.segment()
    await subject.complete(segment)
    check_equal(await subject.fetch(segment.locator, 0, 2**40), segment.log, "log")
    await _delete(subject, segment)
    await nothing_visible(subject, segment)


async def delete_removes_one_segment_only(subject: Subject) -> None:
    """Its neighbour in the partition stays (Aiven: testDelete; Pulsar: testDeleteOffloaded)."""
    partition = subject.partition()
    gone, stays = (subject.segment(partition, start_offset=n) for n in (10, 100))
    await subject.complete(gone)
    await subject.complete(stays)
    await _delete(subject, gone)
    check_equal((await subject.presence(stays)).presence, Presence.COMPLETE, "the neighbour")
    check_equal(len(await subject.names(partition)), 3, "objects of the partition")
    call = subject.manager.fetch_log_segment(gone.locator, ByteRange(start=0, end=1))
    await fails(NotFound, call, "log of the deleted segment")


async def delete_may_be_repeated(subject: Subject) -> None:
    """A delete succeeds before the segment exists, and again after it was deleted."""
    segment = subject.segment()
    await _delete(subject, segment)
    await subject.complete(segment)
    for _ in range(3):
        await _delete(subject, segment)
    await nothing_visible(subject, segment)
    manager = subject.manager
    await fails(NotFound, manager.fetch_indexes(segment.locator), "indexes after the delete")
    await fails(NotFound, manager.read_manifest(segment.locator), "manifest after the delete")


async def delete_finishes_what_another_began(subject: Subject) -> None:
    """Whichever objects are left of a segment, a delete removes them."""
    partition = subject.partition()
    only_manifest = subject.locator(partition, 1)
    await subject.manager.write_manifest(only_manifest, b"{}")
    without_manifest = subject.segment(partition, start_offset=2)
    await subject.copy(without_manifest)
    for locator in (only_manifest, without_manifest.locator):
        await subject.manager.delete_log_segment_data(locator)
    check_equal(await subject.names(partition), [], "objects of the partition")


async def deletes_and_copies_beside_each_other(subject: Subject) -> None:
    """Deleting one segment of a partition never disturbs another that is being copied there."""
    partition = subject.partition("busy")
    for start_offset in range(0, 50, 10):
        old = subject.segment(partition, start_offset=start_offset, log_size_bytes=100)
        new = subject.segment(partition, start_offset=start_offset + 5, log_size_bytes=100)
        await subject.complete(old)
        await asyncio.gather(_delete(subject, old), subject.complete(new))
        check_equal((await subject.presence(new)).presence, Presence.COMPLETE, "the one copied")
        await _delete(subject, new)


async def delete_during_read(subject: Subject) -> None:
    """A reader gets the bytes or NotFound, never other bytes."""
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


async def batch_delete_removes_all_named(subject: Subject) -> None:
    """Complete ones, half deleted ones, absent ones and one named twice, in one call; what was not
    named stays (Aiven: testDeletes).
    """
    subject.needs("batch_delete")
    manager, partition = subject.manager, subject.partition()
    complete = [subject.segment(partition, start_offset=n) for n in range(4)]
    for segment in complete:
        await subject.complete(segment)
    without_manifest = subject.segment(subject.partition("other"), start_offset=5)
    await subject.copy(without_manifest)
    custom = CustomMetadata(store_id=subject.new_uuid(), entropy_bits=3).encode()
    digits = subject.segment(partition, start_offset=6, custom_metadata=custom)
    await subject.complete(digits)
    only_manifest, absent = (subject.locator(partition, n) for n in (7, 8))
    await manager.write_manifest(only_manifest, b"{}")
    stays = complete.pop()
    broken = (without_manifest.locator, digits.locator, only_manifest, absent)
    named = [*(one.locator for one in complete), *broken]
    for locators in ([*named, named[0]], named, []):
        answers = await manager.delete_log_segments(locators)
        check_equal(answers, (None,) * len(locators), "answers")
        names = await subject.names()
        check_equal(len(names), 3, f"objects left: {names}")
    check_equal((await subject.presence(stays)).presence, Presence.COMPLETE, "the one not named")


async def batch_delete_of_many(subject: Subject) -> None:
    """More segments than one request of any store takes (Aiven: testDeleteMoreThanLimit, its
    bug 650).
    """
    subject.needs("batch_delete")
    partition = subject.partition("many")
    locators = [subject.locator(partition, start_offset) for start_offset in range(subject.many)]
    write = subject.manager.write_manifest
    await in_parts([partial(write, locator, b"{}") for locator in locators])
    check_equal(len(await subject.names(partition)), subject.many, "objects before")
    answers = await subject.manager.delete_log_segments(locators)
    check_equal(answers, (None,) * subject.many, "answers")
    check_equal(await subject.names(partition), [], "objects afterwards")
    subject.made.clear()


async def batch_delete_answers_for_each(subject: Subject) -> None:
    """The error of one that cannot be is at its position, and does not keep the others."""
    subject.needs("batch_delete")
    partition = subject.partition()
    first, last = (subject.segment(partition, start_offset=n) for n in (1, 2))
    for segment in (first, last):
        await subject.complete(segment)
    wrong = replace(first.locator, cluster_id="../x")
    answers = await subject.manager.delete_log_segments([first.locator, wrong, last.locator])
    kinds = [None if error is None else error.kind for error in answers]
    check_equal(kinds, [None, ErrorKind.INVALID, None], "kinds of the answers")
    check_equal(await subject.names(partition), [], "objects afterwards")


async def batch_delete_beside_copies(subject: Subject) -> None:
    """Deleting some segments of a partition never disturbs others that are being copied there."""
    subject.needs("batch_delete")
    partition = subject.partition("busy")
    old, new = (
        [subject.segment(partition, start_offset=at + n, log_size_bytes=100) for at in range(5)]
        for n in (0, 10)
    )
    for segment in old:
        await subject.complete(segment)
    answers, *_ = await asyncio.gather(
        subject.manager.delete_log_segments([one.locator for one in old]),
        *(subject.complete(segment) for segment in new),
    )
    check_equal(answers, (None,) * len(old), "answers")
    for segment in new:
        check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "one copied")
    check_equal(len(await subject.names(partition)), 3 * len(new), "objects afterwards")


async def batch_delete_that_is_cancelled(subject: Subject) -> None:
    """Of each segment nothing else went before its manifest, and a repeated call removes what is
    left, and nothing more.
    """
    subject.needs("batch_delete")
    manager, partition = subject.manager, subject.partition()
    stays = subject.segment(partition, start_offset=1_000, log_size_bytes=100)
    await subject.complete(stays)
    for delay in (0.0, 0.001, 0.01, 0.05):
        segments = [
            subject.segment(partition, start_offset=n, log_size_bytes=100) for n in range(10)
        ]
        for segment in segments:
            await subject.complete(segment)
        locators = [segment.locator for segment in segments]
        try:
            async with asyncio.timeout(delay):
                await manager.delete_log_segments(locators)
        except TimeoutError:
            pass
        for segment in segments:
            await _gone_with_its_manifest(subject, segment)
        answers = await manager.delete_log_segments(locators)
        check_equal(answers, (None,) * len(locators), "answers of the repeated call")
        check_equal(len(await subject.names(partition)), 3, "objects afterwards")
    check_equal((await subject.presence(stays)).presence, Presence.COMPLETE, "the one not named")


async def _gone_with_its_manifest(subject: Subject, segment: StoredSegment) -> None:
    """Check that the segment has no manifest if its log or its indexes are gone."""
    try:
        log = await subject.fetch(segment.locator, 0, 2**40)
        await subject.manager.fetch_indexes(segment.locator)
        check_equal(log, segment.log, "log")
    except (NotFound, FileNotFoundError):
        call = subject.manager.read_manifest(segment.locator)
        await fails(NotFound, call, "manifest of a segment whose log or indexes are gone")


async def nothing_visible(subject: Subject, segment: StoredSegment) -> None:
    """Check that no call shows an object of the segment's partition."""
    found = await subject.presence(segment)
    check_equal((found.presence, found.manifest_present), (Presence.MISSING, False), "presence")
    check_equal(await subject.names(segment.locator.segment_id.topic_id_partition), [], "objects")
    whole = subject.manager.fetch_log_segment(segment.locator, ByteRange(start=0, end=1))
    await fails(NotFound, whole, "log of a segment that is not there")


async def _delete(subject: Subject, segment: StoredSegment) -> None:
    await subject.manager.delete_log_segment_data(segment.locator)


CASES = (
    upload_fetch_delete,
    delete_removes_one_segment_only,
    delete_may_be_repeated,
    delete_finishes_what_another_began,
    deletes_and_copies_beside_each_other,
    delete_during_read,
    batch_delete_removes_all_named,
    batch_delete_of_many,
    batch_delete_answers_for_each,
    batch_delete_beside_copies,
    batch_delete_that_is_cancelled,
)
