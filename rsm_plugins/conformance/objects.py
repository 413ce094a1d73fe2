"""Cases about the objects of one segment: what is read is what was stored."""

import asyncio
from dataclasses import replace

from kip405.contracts import IndexType, Presence
from kip405.crc import crc32c
from kip405.errors import Invalid, NotFound
from kip405.indexes import build_indexes_object
from kip405.segments import PLUGIN_METADATA_MAX_BYTES, CustomMetadata
from rsm_plugins.conformance.subject import MIB, SECTIONS, Subject, check, check_equal, fails
from rsm_plugins.layout.keys import objects_of
from rsm_plugins.layout.manifest import MANIFEST_MAX_BYTES


async def new_segment_is_stored_whole(subject: Subject) -> None:
    """Three objects under the names of the layout, with their sizes (Aiven: testUploadANewFile)."""
    segment = subject.segment()
    await subject.copy(segment)
    answer = subject.answered[segment.locator.segment_id.id]
    check(len(answer) <= PLUGIN_METADATA_MAX_BYTES, f"{len(answer)} bytes of the plugin's metadata")
    await subject.manager.write_manifest(segment.locator, b"{}")
    partition = segment.locator.segment_id.topic_id_partition
    suffixes = sorted(name.rpartition(".")[2] for name in await subject.names(partition))
    wanted = sorted(kind.value for kind in objects_of(segment.locator))
    check_equal(suffixes, wanted, "objects")
    check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "presence")


async def copied_bytes_come_back(subject: Subject) -> None:
    """Log and indexes come back unchanged, also if they need more than one message (Aiven:
    testFetchAll; Pulsar: testOffloadAndRead).
    """
    segment = subject.segment(log_size_bytes=3 * MIB + 1)
    await subject.copy(segment)
    check_equal(await subject.fetch(segment.locator, 0, len(segment.log)), segment.log, "log")
    check_equal(
        await subject.manager.fetch_indexes(segment.locator), segment.data.indexes, "indexes"
    )


async def empty_log_is_an_object(subject: Subject) -> None:
    """A log of no bytes is kept like any other (Pulsar: testOffloadEmpty refuses it)."""
    segment = subject.segment(log_size_bytes=0)
    await subject.complete(segment)
    check_equal(await subject.fetch(segment.locator, 0, 10), b"", "an empty log")
    check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "presence")


async def logs_of_every_size(subject: Subject) -> None:
    """The smallest log, and logs of sizes around those at which a store begins to split a log into
    parts.
    """
    part = subject.part_bytes
    for size_bytes in (subject.least_log_bytes, part - 1, part, part + 1):
        segment = subject.segment(log_size_bytes=size_bytes)
        await subject.complete(segment)
        found = await subject.fetch(segment.locator, 0, 2**40)
        check(found == segment.log, f"a log of {size_bytes} bytes came back with {len(found)}")
        check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "presence")


async def large_indexes_come_back(subject: Subject) -> None:
    """An indexes object larger than any message."""
    sections = {**SECTIONS, IndexType.OFFSET: bytes(8) * (5 * MIB // 8)}
    segment = subject.segment(sections=sections)
    await subject.copy(segment)
    check_equal(
        await subject.manager.fetch_indexes(segment.locator), segment.data.indexes, "indexes"
    )


async def manifest_comes_last(subject: Subject) -> None:
    """Without its manifest a segment is reported incomplete, with it complete."""
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


async def manifest_may_be_written_again(subject: Subject) -> None:
    """A writer that did not receive the answer writes the same manifest again, alone or
    concurrently.
    """
    segment = subject.segment()
    await subject.copy(segment)
    manifest = b'{"v":1,"kind":"segment"}'
    write = subject.manager.write_manifest
    await write(segment.locator, manifest)
    await write(segment.locator, manifest)
    await asyncio.gather(*(write(segment.locator, manifest) for _ in range(4)))
    check_equal(await subject.manager.read_manifest(segment.locator), manifest, "manifest")


async def manifest_has_limits(subject: Subject) -> None:
    """An empty manifest and one over 1 MiB are refused; one of 1 MiB is kept."""
    locator = subject.locator(subject.partition())
    await fails(Invalid, subject.manager.write_manifest(locator, b""), "an empty manifest")
    large = b"x" * (MANIFEST_MAX_BYTES + 1)
    await fails(Invalid, subject.manager.write_manifest(locator, large), "a manifest over 1 MiB")
    await subject.manager.write_manifest(locator, large[:-1])
    check_equal(await subject.manager.read_manifest(locator), large[:-1], "a manifest of 1 MiB")


async def malformed_indexes_come_back(subject: Subject) -> None:
    """A plugin stores and answers indexes unchecked; the caller checks them (Pulsar:
    testReadUnknownIndexVersion, testReadUnknownDataVersion, and OffloadIndexTest).
    """
    good = build_indexes_object(SECTIONS)
    malformed = {
        "another magic": b"RLMX" + good[4:],
        "another version": good[:4] + b"\x7f" + good[5:],
        "zeros": bytes(len(good)),
        "one byte too few": good[:-1],
        "a part of the header": good[:5],
    }
    for what, indexes in malformed.items():
        segment = subject.segment()
        data = replace(segment.data, indexes=indexes, indexes_crc32c=crc32c(indexes))
        await subject.manager.copy_log_segment_data(segment.locator, data)
        found = await subject.manager.fetch_indexes(segment.locator)
        check_equal(found, indexes, f"indexes with {what}")


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


CASES = (
    new_segment_is_stored_whole,
    copied_bytes_come_back,
    empty_log_is_an_object,
    logs_of_every_size,
    large_indexes_come_back,
    manifest_comes_last,
    manifest_may_be_written_again,
    manifest_has_limits,
    malformed_indexes_come_back,
    entropy_digits_lead_the_name,
)
