"""Cases that need changes to the store behind the manager's back (H11)."""

from collections.abc import Sequence

from kip405.contracts import Presence, RemoteStorageManager
from kip405.errors import NotFound, Unavailable
from kip405.segments import ByteRange
from rsm_plugins.conformance.broken_copies import give_up
from rsm_plugins.conformance.subject import (
    CaseSkipped,
    StoredSegment,
    StoreFaults,
    Subject,
    check,
    check_equal,
    fails,
    pause,
)
from rsm_plugins.layout.keys import ObjectKind, data_objects_of, object_name, objects_of

SETTLE_TRIES = 600
SETTLE_PAUSE_SECONDS = 0.05
_WHOLE = ByteRange(start=0, end=1 << 40)


async def store_away_is_unavailable_and_comes_back(subject: Subject) -> None:
    """A store that is away is never "missing", "empty" or "deleted"; when it is back, everything is
    as before (Pulsar: testBucketDoesNotExist).
    """
    faults = _faults(subject)
    segment, another = subject.segment(), subject.segment()
    await subject.complete(segment)
    faults.move_away()
    try:
        await _every_call_unavailable(subject.manager, subject, segment, another)
    finally:
        faults.bring_back()
    check_equal(
        (await subject.presence(segment)).presence, Presence.COMPLETE, "presence afterwards"
    )
    check_equal(await subject.fetch(segment.locator, 0, 1 << 40), segment.log, "log afterwards")
    await subject.complete(another)


async def _every_call_unavailable(
    manager: RemoteStorageManager, subject: Subject, segment: StoredSegment, another: StoredSegment
) -> None:
    await fails(Unavailable, manager.read_identity(), "read identity")
    await fails(Unavailable, subject.ensure_identity(), "create identity")
    await fails(Unavailable, subject.presence(segment), "stat")
    await fails(Unavailable, subject.names(), "list")
    await fails(Unavailable, manager.fetch_log_segment(segment.locator, _WHOLE), "fetch")
    await fails(Unavailable, manager.fetch_indexes(segment.locator), "fetch indexes")
    await fails(Unavailable, manager.read_manifest(segment.locator), "read manifest")
    await fails(Unavailable, subject.copy(another), "copy")
    await fails(Unavailable, manager.write_manifest(another.locator, b"{}"), "write manifest")
    await fails(Unavailable, manager.delete_log_segment_data(segment.locator), "delete")
    if "batch_delete" not in subject.lacking:
        await fails(Unavailable, _delete_many(manager, [segment, another]), "delete of many")


async def _delete_many(manager: RemoteStorageManager, segments: Sequence[StoredSegment]) -> None:
    """Raises the error of the call, or those of its answers if none was deleted."""
    errors = await manager.delete_log_segments([segment.locator for segment in segments])
    failed = [error for error in errors if error is not None]
    check(len(failed) in (0, len(segments)), f"some were deleted: {errors}")
    for error in failed:
        raise error


async def stat_reports_each_missing_object(subject: Subject) -> None:
    """Each of the three objects, deleted behind the manager's back, is reported missing by its
    name.
    """
    faults = _faults(subject)
    for kind in objects_of(subject.segment().locator):
        segment = subject.segment()
        await subject.complete(segment)
        name = object_name(segment.locator, kind)
        faults.remove(name)
        found = await subject.presence(segment)
        check_equal(found.presence, Presence.MISSING, f"presence without {kind.value}")
        check_equal(found.manifest_present, kind is not ObjectKind.MANIFEST, "manifest present")
        check(name in found.detail, f"the detail does not name the object: {found.detail}")


async def stat_reports_a_truncated_object(subject: Subject) -> None:
    """An object that became shorter is DIFFERENT."""
    faults = _faults(subject)
    for kind in data_objects_of(subject.segment().locator):
        segment = subject.segment()
        await subject.complete(segment)
        faults.truncate(object_name(segment.locator, kind), 5)
        check_equal((await subject.presence(segment)).presence, Presence.DIFFERENT, kind.value)


async def missing_log_is_not_found(subject: Subject) -> None:
    """A reader of a log that was deleted behind the manager's back gets NotFound (Pulsar:
    testReadNotExistLedger).
    """
    faults = _faults(subject)
    segment = subject.segment()
    await subject.complete(segment)
    faults.remove(object_name(segment.locator, data_objects_of(segment.locator)[0]))
    call = subject.manager.fetch_log_segment(segment.locator, _WHOLE)
    await fails(NotFound, call, "a log that was removed")


async def failures_leave_no_files(subject: Subject) -> None:
    """Cancelled and repeated copies and the delete leave nothing at all behind."""
    faults = _faults(subject)
    before = faults.names()
    segment = subject.segment(subject.partition("failures"), log_size_bytes=8 << 20)
    for delay in (0.0, 0.002, 0.01):
        await give_up(subject, segment, delay)
    await subject.complete(segment)
    await subject.manager.delete_log_segment_data(segment.locator)
    await _settled(faults, before)
    check_equal(faults.names(), before, "objects and leftovers of the store")


async def _settled(faults: StoreFaults, wanted: list[str]) -> None:
    """Waits, because a plugin in another process ends an abandoned copy in its own time."""
    for _ in range(SETTLE_TRIES):
        if faults.names() == wanted:
            return
        await pause(SETTLE_PAUSE_SECONDS)


def _faults(subject: Subject) -> StoreFaults:
    if subject.faults is None:
        raise CaseSkipped("the store cannot be changed behind the manager's back here")
    return subject.faults


CASES = (
    store_away_is_unavailable_and_comes_back,
    stat_reports_each_missing_object,
    stat_reports_a_truncated_object,
    missing_log_is_not_found,
    failures_leave_no_files,
)
