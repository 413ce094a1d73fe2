"""`rlm verify` of one partition: findings in snapshot, stores and bytes, and what is unknown."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Busy, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.segments import FileSlice, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.verification import Issue, IssueKind
from rlm.tasks.verification import PartitionReport
from rlm.tasks.verify_runs import Event, Progress
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import VERIFY_BYTES_PER_SECOND, Rig
from tests.builders.store import MemoryStore

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
SECOND_STORE = Uuid(b"\x52" * 16)


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) remote and trimmed; [300, 350) local."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    await made.trim.run(made.led)
    assert made.broker.log_start_offset == 300
    return made


def segment(rig: Rig, start: int) -> RemoteLogSegmentMetadata:
    (found,) = [
        entry.metadata
        for entry in rig.ledger.view.in_state(FINISHED)
        if entry.metadata.start_offset == start
    ]
    return found


def name_of(rig: Rig, start: int, kind: ObjectKind) -> str:
    return object_name(segment(rig, start).locator(CLUSTER_ID), kind)


def leave(rig: Rig, made: RemoteLogSegmentMetadata) -> None:
    """The segment is deleted as cleanup deletes one."""
    for name in object_names(made.locator(CLUSTER_ID)).values():
        rig.store.objects.pop(name, None)
    for before, state in ((FINISHED, DELETING), (DELETING, DELETED)):
        deleted = made.in_state(state, event_timestamp_ms=0, broker_id=1)
        rig.ledger.write(deleted, previous=int(before))
    rig.ledger.write(None, segment_id=made.segment_id, previous=int(DELETED))


async def events(rig: Rig, *, deep: bool = False) -> list[Event]:
    return [event async for event in rig.verify_runs.run("", deep=deep)]


async def verified(rig: Rig, *, deep: bool = False) -> tuple[list[Issue], PartitionReport]:
    """The findings, and the report."""
    found = await events(rig, deep=deep)
    (report,) = [one for one in found if isinstance(one, PartitionReport)]
    issues = [one for one in found if isinstance(one, Issue) and one.is_finding]
    assert report.findings == len(issues)
    return issues, report


@pytest.mark.parametrize("deep", [False, True])
async def test_a_whole_partition_is_clean_and_its_offsets_are_named(rig: Rig, deep: bool) -> None:
    objects = dict(rig.store.objects)
    written = len(rig.ledger.log)
    issues, report = await verified(rig, deep=deep)
    assert issues == []
    assert report.unchecked == ()
    assert report.segments == 3
    assert report.offsets is not None
    assert [value for _, value in report.offsets.named] == [350, 350, 300, 300, 0]
    assert rig.store.objects == objects
    assert len(rig.ledger.log) == written


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST])
async def test_h11_a_lost_object_is_found_without_a_reader(rig: Rig, kind: ObjectKind) -> None:
    del rig.store.objects[name_of(rig, 100, kind)]
    (issue,), report = await verified(rig)
    assert issue.kind is IssueKind.OBJECTS
    assert (issue.start_offset, issue.next_offset) == (100, 200)
    assert issue.segment_id == segment(rig, 100).segment_id.id
    assert name_of(rig, 100, kind).startswith(issue.object_name)
    assert issue.action
    assert report.unchecked == ()
    snapshot = await rig.snapshots.take(rig.led)
    assert segment(rig, 100) in rig.lost.suspects(snapshot)
    is_readable = kind is ObjectKind.MANIFEST
    assert bool(rig.losses.segments(PARTITION.key)) is not is_readable


async def test_h11_a_truncated_object_is_found_by_its_size(rig: Rig) -> None:
    name = name_of(rig, 100, ObjectKind.LOG)
    rig.store.objects[name] = rig.store.objects[name][:-1]
    (issue,), _ = await verified(rig)
    assert issue.kind is IssueKind.OBJECTS
    assert name in issue.text


async def test_what_is_lost_is_an_alarm_until_it_is_seen_again(rig: Rig) -> None:
    name = name_of(rig, 100, ObjectKind.LOG)
    taken = rig.store.objects.pop(name)
    await verified(rig)
    lost = segment(rig, 100).segment_id.id
    assert rig.losses.segments(PARTITION.key) == {lost}
    rig.store.objects[name] = taken
    assert (await verified(rig))[0] == []
    assert rig.losses.segments(PARTITION.key) == frozenset()


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES])
async def test_g09_a_flipped_byte_is_found_by_a_deep_run_only(rig: Rig, kind: ObjectKind) -> None:
    name = name_of(rig, 100, kind)
    before = rig.store.objects[name]
    rig.store.objects[name] = before[:-3] + bytes([before[-3] ^ 1]) + before[-2:]
    assert (await verified(rig))[0] == []
    issues, report = await verified(rig, deep=True)
    assert {(one.kind, one.object_name) for one in issues} == {(IssueKind.DAMAGED, name)}
    assert report.unchecked == ()
    damaged = segment(rig, 100).segment_id.id
    assert damaged in rig.losses.damaged(PARTITION.key)
    assert (await verified(rig))[0] == []
    assert damaged in rig.losses.damaged(PARTITION.key)  # sizes do not disprove damage
    rig.store.objects[name] = before
    assert (await verified(rig, deep=True))[0] == []
    assert rig.losses.damaged(PARTITION.key) == {}


async def test_h06_a_manifest_that_describes_another_segment_is_found(rig: Rig) -> None:
    first, second = (name_of(rig, start, ObjectKind.MANIFEST) for start in (0, 100))
    rig.store.objects[second] = rig.store.objects[first]
    (issue,), _ = await verified(rig, deep=True)
    assert (issue.kind, issue.object_name) == (IssueKind.MANIFEST, second)
    rig.store.objects[second] = b"{}"
    (issue,), _ = await verified(rig, deep=True)
    assert (issue.kind, issue.object_name) == (IssueKind.MANIFEST, second)
    assert rig.losses.segments(PARTITION.key) == frozenset()  # readers do not need it


@pytest.mark.parametrize("deep", [False, True])
async def test_h38_a_store_that_is_away_or_another_one_is_not_clean(rig: Rig, deep: bool) -> None:
    identity = rig.store.identity
    assert identity is not None
    rig.store.objects.clear()
    foreign = replace(identity, store_id=SECOND_STORE), replace(identity, cluster_id="x")
    for other in (None, *foreign):
        rig.store.identity = other
        issues, report = await verified(rig, deep=deep)
        assert issues == []
        assert report.segments == 0
        assert any("3 segments in store" in why for why in report.unchecked)
    assert rig.losses.segments(PARTITION.key) == frozenset()


async def test_h38_a_store_that_stops_answering_leaves_the_rest_unchecked(rig: Rig) -> None:
    rig.store.errors[name_of(rig, 100, ObjectKind.LOG)] = Unavailable("away")
    issues, report = await verified(rig, deep=True)
    assert issues == []
    assert report.segments == 1
    assert "2 segments in store" in report.unchecked[0]
    assert "away" in report.unchecked[0]


async def test_h25_a_lent_file_that_is_gone_is_no_lost_object(rig: Rig, tmp_path: Path) -> None:
    """Scratch files are this machine's: who clears its folders loses nothing of the store."""

    async def lent(*_: object) -> FileSlice:
        path = str(tmp_path / "gone")
        return FileSlice(path=path, position=0, size_bytes=1, keeper=object())

    rig.store.fetch_log_segment = lent  # type: ignore[method-assign,assignment]
    issues, report = await verified(rig, deep=True)
    assert issues == []
    assert "3 segments in store" in report.unchecked[0]
    assert rig.losses.segments(PARTITION.key) == frozenset()


async def test_a_store_that_is_away_for_a_moment_is_asked_again(rig: Rig) -> None:
    name = name_of(rig, 100, ObjectKind.LOG)
    rig.store.errors[name] = Unavailable("away")
    fetch = rig.store.fetch_log_segment

    async def recovers(*args: object) -> bytes:
        try:
            return await fetch(*args)  # type: ignore[arg-type]
        except Unavailable:
            rig.store.errors.pop(name)
            raise

    rig.store.fetch_log_segment = recovers  # type: ignore[method-assign,assignment]
    found = await events(rig, deep=True)
    (report,) = [one for one in found if isinstance(one, PartitionReport)]
    assert (report.findings, report.unchecked) == (0, ())
    last = found[-1]
    assert isinstance(last, Progress)
    assert last.size_bytes == sum(
        len(data) for stored, data in rig.store.objects.items() if not stored.endswith("manifest")
    )


async def test_h06_a_ledger_with_a_problem_proves_nothing(rig: Rig) -> None:
    rig.ledger.problem = "it was created again"
    issues, report = await verified(rig)
    assert issues == []
    assert report.unchecked == ("it was created again",)


async def test_h38_a_partition_that_cannot_be_asked_for_is_unchecked(rig: Rig) -> None:
    row = rig.led
    rig.broker.elect(2, 1)
    rig.led_rows = (row,)
    issues, report = await verified(rig)
    assert issues == []
    assert report.offsets is None
    assert report.unchecked


async def test_h15_a_gap_is_a_finding_until_it_is_recorded_as_a_hole(rig: Rig) -> None:
    leave(rig, segment(rig, 100))
    (issue,), _ = await verified(rig)
    assert (issue.kind, issue.start_offset, issue.next_offset) == (IssueKind.GAP, 100, 200)
    hole = Hole(start=100, end=200, cause="accepted loss: ann")
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)))
    found = await events(rig)
    (note,) = [one for one in found if isinstance(one, Issue)]
    assert (note.kind, note.is_finding) == (IssueKind.HOLE, False)


async def test_a_stale_view_is_no_finding(rig: Rig) -> None:
    """The last record is read by a barrier only: without it there would be a gap."""
    rig.ledger.restart()
    rig.ledger.lags = True
    issues, report = await verified(rig)
    assert (issues, report.unchecked) == ([], ())


async def test_a_copy_that_ends_meanwhile_is_not_beyond_the_last_stable_offset(rig: Rig) -> None:
    """The last stable offset of the snapshot is older than its ledger."""

    def moves(question: str) -> None:
        if question == "last stable offset":
            rig.broker.after_answer = lambda _: None
            rig.broker.log += rig.disk.active(350, 450)
            rig.broker.ends_at(450)
            made = replace(segment(rig, 200), start_offset=300, end_offset=399)
            number = replace(made.segment_id, id=Uuid(b"\x99" * 16))
            rig.ledger.copied(replace(made, segment_id=number))

    rig.broker.after_answer = moves
    began = rig.clock.now
    issues, report = await verified(rig)
    assert [one.kind for one in issues] == [IssueKind.OBJECTS]  # it was made up, without objects
    assert report.offsets is not None
    assert report.offsets.violations() == ()
    assert rig.clock.now == began  # nothing had to be confirmed by a second snapshot


async def test_a_segment_that_ended_meanwhile_is_no_finding(rig: Rig) -> None:
    rig.store.objects.pop(name_of(rig, 0, ObjectKind.LOG))
    stat = rig.store.stat

    async def ends(*args: object) -> object:
        rig.remote_start(100)
        return await stat(*args)  # type: ignore[arg-type]

    rig.store.stat = ends  # type: ignore[method-assign,assignment]
    issues, report = await verified(rig)
    assert (issues, report.unchecked) == ([], ())


async def test_a_segment_that_left_the_ledger_meanwhile_is_no_finding(rig: Rig) -> None:
    name = name_of(rig, 100, ObjectKind.LOG)
    rig.store.objects[name] = b"x" * len(rig.store.objects[name])
    gone = segment(rig, 100)
    rig.store.errors[name] = NotFound("deleted meanwhile")
    fetch = rig.store.fetch_log_segment

    async def deleted(*args: object) -> bytes:
        try:
            return await fetch(*args)  # type: ignore[arg-type]
        except NotFound:
            leave(rig, gone)
            raise

    rig.store.fetch_log_segment = deleted  # type: ignore[method-assign,assignment]
    issues, report = await verified(rig, deep=True)
    assert (issues, report.unchecked) == ([], ())


async def test_metadata_that_names_no_store_is_a_finding(rig: Rig) -> None:
    number = replace(segment(rig, 100).segment_id, id=Uuid(b"\x99" * 16))
    unknown = replace(segment(rig, 100), segment_id=number, custom_metadata=b"\x07")
    rig.ledger.copied(unknown)
    (issue,), _ = await verified(rig)
    assert (issue.kind, issue.segment_id) == (IssueKind.DAMAGED, number.id)


async def test_a_second_store_that_is_away_leaves_the_first_checked(rig: Rig) -> None:
    away = MemoryStore(CLUSTER_ID, SECOND_STORE)
    away.identity = None
    rig.shelf.stores[SECOND_STORE] = away
    custom = replace(segment(rig, 100).custom(), store_id=SECOND_STORE)
    number = replace(segment(rig, 100).segment_id, id=Uuid(b"\x99" * 16))
    moved = replace(segment(rig, 100), segment_id=number, custom_metadata=custom.encode())
    rig.ledger.copied(moved)
    rig.store.objects.pop(name_of(rig, 200, ObjectKind.LOG))
    issues, report = await verified(rig)
    assert [one.start_offset for one in issues] == [200]
    assert report.segments == 3
    assert any("1 segments in store" in why for why in report.unchecked)


async def test_a_deep_run_keeps_its_rate_and_reports_how_far_it_is(rig: Rig) -> None:
    size = sum(len(data) for name, data in rig.store.objects.items() if "manifest" not in name)
    began = rig.clock.now
    found = [one for one in await events(rig, deep=True) if isinstance(one, Progress)]
    beyond_burst = size - VERIFY_BYTES_PER_SECOND
    least_ms = beyond_burst * 1_000 // VERIFY_BYTES_PER_SECOND
    assert rig.clock.now - began >= least_ms > 0
    assert [one.segments for one in found] == sorted(one.segments for one in found)
    assert (found[0].segments, found[-1].segments, found[-1].segments_total) == (0, 3, 3)
    assert found[-1].size_bytes == size
    assert len(found) > 2


async def test_g10_at_most_two_runs_at_once_and_an_abandoned_one_makes_room(rig: Rig) -> None:
    running = [rig.verify_runs.run("", deep=True) for _ in range(2)]
    for one in running:
        await anext(one)
    shown = rig.verify_runs.running()
    assert [(one.topic, one.deep, one.progress.segments_total) for one in shown] == [
        ("", True, 3)
    ] * 2
    with pytest.raises(Busy):
        await anext(rig.verify_runs.run("", deep=False))
    await running[0].aclose()
    assert (await verified(rig))[0] == []
    await running[1].aclose()
    assert rig.verify_runs.running() == ()


async def test_only_the_topic_that_is_asked_for_is_verified(rig: Rig) -> None:
    found = [one async for one in rig.verify_runs.run("others", deep=False)]
    assert not any(isinstance(one, PartitionReport) for one in found)
