"""Cases about identity, presence, listing and names, and about the findings of a store."""

import asyncio
from dataclasses import replace
from functools import partial

from kip405.contracts import ExpectedSegment, FindingKind, Presence, StoreIdentity
from kip405.errors import Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition
from kip405.segments import ByteRange, Layout, SegmentLocator
from rsm_plugins.conformance.subject import (
    StoredSegment,
    Subject,
    check,
    check_equal,
    fails,
    in_parts,
)
from rsm_plugins.layout.stored import encode_contents, expected_sizes, stored_contents

ODD_TOPICS = ("a", "a.b", "a_b", "-", "--", "...", "a-1", "a-10", "CON", "t" * 249, "x" * 200 + "y")


async def identity_is_created_once(subject: Subject) -> None:
    """Every creator gets the identity that is there, whichever creator won."""
    proposals = [
        StoreIdentity(store_id=subject.new_uuid(), cluster_id=subject.cluster_id, created_ms=n)
        for n in range(12)
    ]
    answers = await asyncio.gather(*(subject.manager.create_identity(one) for one in proposals))
    check_equal(len(set(answers)), 1, "different identities answered to concurrent creators")
    check_equal(await subject.manager.read_identity(), answers[0], "identity read")
    late = StoreIdentity(store_id=subject.new_uuid(), cluster_id="other", created_ms=99)
    check_equal(
        await subject.manager.create_identity(late), answers[0], "identity after a late creator"
    )


async def stat_reports_different_sizes(subject: Subject) -> None:
    """A segment whose log or indexes have another size than expected is DIFFERENT, by name."""
    segment = subject.segment()
    await subject.complete(segment)
    for changed, suffix in _other_sizes(subject, segment):
        found = (await subject.manager.stat([changed]))[0]
        check_equal((found.presence, found.manifest_present), (Presence.DIFFERENT, True), suffix)
        check(suffix in found.detail, f"the detail does not name the object: {found.detail}")


def _other_sizes(
    subject: Subject, segment: StoredSegment
) -> tuple[tuple[ExpectedSegment, str], ...]:
    """What stat is asked with the size of one object changed, and the suffix of that object."""
    expected = subject.expected(segment)
    if subject.layout is Layout.KAFKA:
        return (
            (replace(expected, log_size_bytes=len(segment.log) + 1), ".log"),
            (replace(expected, indexes_size_bytes=1), ".indexes"),
        )
    contents = stored_contents(expected.locator, expected.log_size_bytes)
    asked: list[tuple[ExpectedSegment, str]] = []
    for kind, content in contents.items():
        other = contents | {kind: replace(content, size_bytes=content.size_bytes + 1)}
        subject.answered[segment.locator.segment_id.id] = encode_contents(list(other.values()))
        asked.append((subject.expected(segment), f".{kind.value}"))
    return tuple(asked)


async def stat_answers_in_order(subject: Subject) -> None:
    """Many segments at once, more than one call takes, and none at all."""
    check_equal(await subject.manager.stat([]), (), "stat of nothing")
    segment = subject.segment()
    await subject.complete(segment)
    partition = subject.partition()
    absent = [
        subject.expected_of(
            replace(segment.locator, segment_id=_id_of(subject, partition), start_offset=n), 1, 1
        )
        for n in range(1500)
    ]
    asked = [*absent[:1200], subject.expected(segment), *absent[1200:]]
    found = await subject.manager.stat(asked)
    complete = [n for n, presence in enumerate(found) if presence.presence is Presence.COMPLETE]
    check_equal((len(found), complete), (1501, [1200]), "positions of the complete segment")


def _id_of(subject: Subject, partition: TopicIdPartition) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(topic_id_partition=partition, id=subject.new_uuid())


async def lists_by_cluster_and_partition(subject: Subject) -> None:
    """Names, sizes and order; neighbours whose names begin alike are kept apart."""
    topic_id = subject.new_uuid()
    partitions = [replace(subject.partition("a", n), topic_id=topic_id) for n in (1, 10, 11, 2)]
    partitions += [subject.partition("a-1", 1), subject.partition("a", 1)]
    segments = [
        subject.segment(partition, start_offset=2**40, log_size_bytes=123)
        for partition in partitions
    ]
    for segment in segments:
        await subject.complete(segment)
    in_partitions: list[str] = []
    for segment in segments:
        partition = segment.locator.segment_id.topic_id_partition
        listed = [
            found async for found in subject.manager.list_objects(subject.cluster_id, partition)
        ]
        check_equal(len(listed), 3, f"objects of {partition}")
        sizes = {found.name.rpartition(".")[2]: found.size_bytes for found in listed}
        expected = expected_sizes(subject.expected(segment))
        wanted = {kind.value: size for kind, size in expected.items()} | {"rsm-manifest": 7}
        check_equal(sizes, wanted, "sizes")
        check(all(found.modified_ms > 0 for found in listed), "objects without a time")
        in_partitions += (found.name for found in listed)
    names = await subject.names()
    check_equal(names, sorted(in_partitions), "names below the cluster, in order")
    other = [found async for found in subject.manager.list_objects(f"{subject.cluster_id}-other")]
    check_equal(other, [], "objects of another cluster")


async def lists_many(subject: Subject) -> None:
    """More objects than one page of any store."""
    partition = subject.partition("many")
    locators = [subject.locator(partition, start_offset) for start_offset in range(subject.many)]
    write = subject.manager.write_manifest
    await in_parts([partial(write, locator, b"{}") for locator in locators])
    names = await subject.names(partition)
    check_equal(len(set(names)), subject.many, "objects")
    check_equal(names, sorted(names), "order of the names")


async def odd_topic_names(subject: Subject) -> None:
    """Every name Kafka allows, and long ones that differ only after the cut."""
    topics = [*ODD_TOPICS, "t" * 248 + "u"]
    segments = [
        subject.segment(subject.partition(topic), log_size_bytes=50 + n)
        for n, topic in enumerate(topics)
    ]
    for segment in segments:
        await subject.complete(segment)
    for segment in segments:
        check_equal(
            await subject.fetch(segment.locator, 0, 1000), segment.log, "log of an odd topic"
        )
        partition = segment.locator.segment_id.topic_id_partition
        check_equal(len(await subject.names(partition)), 3, f"objects of {partition.topic}")


async def names_cannot_leave_their_folder(subject: Subject) -> None:
    """Path traversal, empty and oversized names are refused before anything is touched."""
    segment = subject.segment()
    for topic in ("../x", "..", ".", "a/b", "/etc", "a\0b", "t" * 250, "a b", "\u00e4"):
        partition = replace(segment.locator.segment_id.topic_id_partition, topic=topic)
        segment_id = replace(segment.locator.segment_id, topic_id_partition=partition)
        await _refused(
            subject, segment, replace(segment.locator, segment_id=segment_id), repr(topic)
        )
    for cluster_id in ("", "..", ".", "a/b", "../../x", "a\0b", "c" * 129):
        await _refused(
            subject, segment, replace(segment.locator, cluster_id=cluster_id), repr(cluster_id)
        )
    await _refused(subject, segment, replace(segment.locator, start_offset=-1), "start offset -1")


async def _refused(
    subject: Subject, segment: StoredSegment, locator: SegmentLocator, what: str
) -> None:
    manager = subject.manager
    await fails(Invalid, manager.copy_log_segment_data(locator, segment.data), f"copy, {what}")
    await fails(Invalid, manager.write_manifest(locator, b"{}"), f"manifest, {what}")
    await fails(
        Invalid, manager.fetch_log_segment(locator, ByteRange(start=0, end=1)), f"fetch, {what}"
    )
    await fails(Invalid, manager.delete_log_segment_data(locator), f"delete, {what}")


async def inspect_reports_how_the_store_is_set_up(subject: Subject) -> None:
    """Findings are values with a word for their state, and the same when requested again. A value
    that cannot be read is reported as unknown, not left out and not raised.
    """
    subject.needs("inspect")
    found = await subject.manager.inspect()
    for finding in found:
        what = finding.kind.value
        check(isinstance(finding.kind, FindingKind), f"{finding.kind!r} is no kind of finding")
        check(bool(finding.state), f"{what} without a state")
        check(finding.days is None or finding.days >= 0, f"{what}: {finding.days} days")
        check(finding.value is None or finding.value >= 0, f"{what}: value {finding.value}")
        shown = [secret for secret in subject.secrets if secret in finding.state]
        check_equal(len(shown), 0, f"secrets shown by {what}")
    again = await subject.manager.inspect()
    check_equal(
        sorted(one.kind.value for one in again),
        sorted(one.kind.value for one in found),
        "kinds of findings when asked again",
    )


CASES = (
    identity_is_created_once,
    stat_reports_different_sizes,
    stat_answers_in_order,
    lists_by_cluster_and_partition,
    lists_many,
    odd_topic_names,
    names_cannot_leave_their_folder,
    inspect_reports_how_the_store_is_set_up,
)
