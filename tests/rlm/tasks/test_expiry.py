"""The expiry task: order, faults between its steps, and what stops it (G4, H1, H2, H5, H16)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, SegmentLocator
from rlm.plans.expiry import MOST_SKEW_MS, NoExpiry
from rlmm.publisher import OutcomeUnknown
from rlmm.settings_records import CAUSE_RETENTION, FreezeRecord, StartRecord, TotalRetention
from rsm_plugins.layout.keys import parse_name
from tests.builders.checkpoints import Checkpoints
from tests.builders.ledger import OTHER_WRITER, PARTITION
from tests.builders.rig import NODE_ID, Rig
from tests.rlm.tasks.test_cancel_everywhere import cancelled_at
from tests.rlm.tasks.test_expiration import expiration_of

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
OLD_MS = 10_000_000
LONG = TotalRetention(retention_ms=2 * OLD_MS)
SHORT = TotalRetention(retention_ms=OLD_MS // 2)
BASES = (0, 100, 200, 300)
"""Three segments are copied; the active one begins at 300."""


async def made_at(path: Path, checkpoints: Checkpoints | None = None) -> Rig:
    rig = Rig(path, checkpoints=checkpoints)
    rig.write_log(*BASES, end=350)
    await rig.copy.run(rig.led)
    rig.clock.advance(OLD_MS)
    rig.heartbeat()
    rig.enable(trim=False, total=LONG)
    await rig.expiry.run(rig.led)
    assert rig.expiry.statuses[PARTITION.key].held.reason is NoExpiry.WITHIN_RETENTION
    rig.settings.published.clear()
    return rig


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments of 100 offsets, far older than SHORT, which is not in force yet."""
    return await made_at(tmp_path)


def expire(rig: Rig) -> None:
    """Retention becomes shorter: a run after that has no limit."""
    rig.enable(trim=False, total=SHORT)


def start_of(rig: Rig) -> int | None:
    return rig.settings.view.remote_log_start(PARTITION.key)


def stored(rig: Rig) -> int:
    """Segments of which an object is there."""
    return len({parse_name(name).segment_id for name in rig.store.objects})


def check_gone(rig: Rig) -> None:
    """Nothing is left below the start, neither in the store nor in the ledger."""
    assert start_of(rig) == 300
    assert not rig.store.objects
    assert not rig.ledger.view.entries


@pytest.mark.parametrize("mode", ["tier", "copy"])
async def test_g4_what_retention_ends_goes_from_ledger_and_store(rig: Rig, mode: str) -> None:
    rig.enable(mode=mode, trim=False, total=SHORT)
    await rig.expiry.run(rig.led)
    check_gone(rig)
    (record,) = rig.settings.published
    assert isinstance(record, StartRecord)
    assert (record.remote_log_start_offset, record.cause) == (300, CAUSE_RETENTION)
    assert record.decided_epoch == 0
    assert len(rig.audit.deleted) == 3
    assert (rig.audit.starts, set(rig.audit.causes)) == ([300], {CAUSE_RETENTION})
    assert (rig.audit.start_causes, rig.audit.start_retentions) == ([CAUSE_RETENTION], [SHORT])
    ((topic, segments, size_bytes),) = rig.expired
    assert (topic, segments) == (PARTITION.topic, 3)
    status = rig.expiry.statuses[PARTITION.key]
    assert (status.deleted_segments, status.deleted_bytes) == (3, size_bytes)


async def test_h02_the_start_is_durable_before_anything_is_deleted(rig: Rig) -> None:
    expire(rig)
    seen = []
    rig.ledger.before_publish = lambda _: seen.append(start_of(rig))
    rig.store.before = lambda _: seen.append(start_of(rig))
    await rig.expiry.run(rig.led)
    assert set(seen) == {300}


async def test_h10_a_raise_with_an_unknown_outcome_deletes_nothing(rig: Rig) -> None:
    expire(rig)
    rig.settings.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await rig.expiry.run(rig.led)
    assert stored(rig) == 3
    assert {one.state for one in rig.ledger.view.entries.values()} == {FINISHED}
    rig.settings.loses_acks = False
    rig.settings.land()
    await rig.expiry.run(rig.led)
    check_gone(rig)


async def test_h02_a_start_that_was_not_raised_after_all_keeps_everything(rig: Rig) -> None:
    """A settings topic that lies: the publish returns, and the view does not show the start."""
    expire(rig)

    async def lies(record: object, leader_epoch: int = -1) -> None:
        return None

    rig.settings.publish = lies  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="not below the remote log start 0"):
        await rig.expiry.run(rig.led)
    assert stored(rig) == 3


async def test_h01_a_log_start_that_somebody_moved_at_the_broker_ends_nothing(rig: Rig) -> None:
    rig.broker.log_start_offset = 300
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_h16_one_run_takes_a_share_and_a_run_after_a_change_takes_all(rig: Rig) -> None:
    expire(rig)
    rig.expiry.forget(PARTITION.key)  # as after a restart: it is not known what held before
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (100, 2)
    assert rig.expiry.statuses[PARTITION.key].held.reason is NoExpiry.LATER
    await rig.expiry.run(rig.led)
    assert start_of(rig) == 200
    rig.enable(trim=False, total=replace(SHORT, retention_bytes=10**9))
    await rig.expiry.run(rig.led)
    check_gone(rig)


@pytest.mark.parametrize("ahead_ms", [MOST_SKEW_MS + 1, -MOST_SKEW_MS - 1, 31_536_000_000])
async def test_h16_clocks_that_disagree_delete_nothing(rig: Rig, ahead_ms: int) -> None:
    expire(rig)
    rig.settings.broker_ahead_ms = -ahead_ms
    rig.heartbeat()
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)
    assert rig.expiry.statuses[PARTITION.key].held.reason is NoExpiry.CLOCK
    rig.settings.broker_ahead_ms = 0
    rig.heartbeat()
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (100, 2), "the limit of a run holds again"


async def test_h16_a_clock_that_jumps_between_plan_and_raise_deletes_nothing(rig: Rig) -> None:
    expire(rig)

    def jump() -> None:
        rig.settings.broker_ahead_ms = -MOST_SKEW_MS - 1
        rig.heartbeat()

    rig.audit.before_write = jump
    with pytest.raises(Fenced, match="not certain"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_h16_a_service_that_has_read_only_old_settings_does_not_know_the_time(
    rig: Rig,
) -> None:
    rig.settings.is_replay = True
    expire(rig)
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_h16_another_service_that_disagrees_with_the_brokers_stops_it(rig: Rig) -> None:
    """Our host is wrong, and so is the broker on it that stamps the settings topic."""
    expire(rig)
    right_ms = rig.clock.now
    rig.settings.broker_ahead_ms = 0
    rig.clock.now += 31_536_000_000
    rig.settings.now_ms = right_ms
    rig.heartbeat_of(2, time_ms=right_ms)
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)
    assert "service/2" in rig.expiry.statuses[PARTITION.key].held.detail


def run_ahead(rig: Rig) -> None:
    """The clock of our host is a year ahead, and the broker on it now leads the settings topic."""
    rig.clock.wall_ahead_ms = rig.settings.broker_ahead_ms = 31_536_000_000
    rig.heartbeat_of(NODE_ID, time_ms=rig.clock.now_ms())


async def test_h16_a_wrong_broker_that_takes_over_the_settings_is_noticed_at_once(rig: Rig) -> None:
    """It has stamped nothing but our own heartbeat, whose clock is the same: the others, which were
    heard before, show the time.
    """
    rig.heartbeat_of(2, time_ms=rig.clock.now)
    run_ahead(rig)
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)
    assert "service/2" in rig.expiry.statuses[PARTITION.key].held.detail


async def test_h16_a_service_that_has_just_started_waits_until_it_has_heard_the_others(
    rig: Rig,
) -> None:
    rig.settings.restart()
    run_ahead(rig)
    await rig.expiry.run(rig.led)
    rig.clock.advance(59_999)
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)
    assert rig.expiry.statuses[PARTITION.key].held.reason is NoExpiry.NOT_READY
    rig.clock.advance(1)
    await rig.expiry.run(rig.led)
    assert start_of(rig) != 0, "nobody has said that the time is another one"


def frozen(*stopped: str) -> FreezeRecord:
    return FreezeRecord(topic_id=None, stopped=stopped, by="me", why="a test")


async def test_g1_a_freeze_of_deletions_stops_it_and_a_freeze_of_trims_does_not(rig: Rig) -> None:
    expire(rig)
    rig.settings.write(frozen("trim", "delete", "sweep"))
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)
    assert rig.expiry.statuses[PARTITION.key].held.reason is NoExpiry.FREEZE_RECORD
    rig.settings.write(frozen("trim", "sweep"))
    await rig.expiry.run(rig.led)
    check_gone(rig)


async def test_what_an_interrupted_deletion_left_goes_by_one_call(rig: Rig) -> None:
    expire(rig)

    def away(operation: str) -> None:
        raise Unavailable("the store is away")

    rig.store.before = away
    with pytest.raises(Unavailable):
        await rig.expiry.run(rig.led)
    assert stored(rig) == 3
    rig.store.before = lambda _: None
    plain, calls = rig.store.delete_log_segments, list[int]()

    async def counted(locators: Sequence[SegmentLocator]) -> tuple[RemoteStorageError | None, ...]:
        calls.append(len(locators))
        return await plain(locators)

    rig.store.delete_log_segments = counted  # type: ignore[method-assign]
    await rig.expiry.run(rig.led)
    assert calls == [3]
    assert len(rig.audit.deleted) == 3
    check_gone(rig)


async def test_g1_a_freeze_between_plan_and_raise_stops_it(rig: Rig) -> None:
    expire(rig)
    rig.settings.lags = True
    rig.audit.before_write = lambda: rig.settings.write(frozen("delete"))
    with pytest.raises(Fenced, match="frozen by command"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_retention_that_becomes_longer_between_plan_and_raise_stops_it(rig: Rig) -> None:
    expire(rig)
    rig.settings.lags = True
    rig.audit.before_write = lambda: rig.enable(trim=False, total=LONG)
    with pytest.raises(Fenced, match="retention was changed"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_a_plan_that_the_second_snapshot_does_not_confirm_is_dropped(rig: Rig) -> None:
    """The view lagged: another leader has begun to delete, or a record is disputed by now."""
    expire(rig)
    plain, count = rig.snapshots.take, 0

    async def then_it_changes(led: object) -> object:
        nonlocal count
        count += 1
        if count == 2:
            entry = rig.ledger.view.in_state(FINISHED)[0]
            zombie = entry.metadata.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
            rig.ledger.write(zombie, previous=0, writer=OTHER_WRITER)
        return await plain(led)  # type: ignore[arg-type]

    rig.snapshots.take = then_it_changes  # type: ignore[method-assign, assignment]
    with pytest.raises(Fenced, match="300 was planned"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_h05_leadership_lost_before_the_raise_raises_nothing(rig: Rig) -> None:
    expire(rig)
    rig.audit.before_write = lambda: rig.broker.elect(2, 1)
    with pytest.raises(Fenced, match="led by 2"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_h05_leadership_lost_in_the_batch_keeps_the_objects(rig: Rig) -> None:
    expire(rig)
    rig.ledger.after_publish = lambda _: rig.broker.elect(2, 1)
    with pytest.raises(Fenced, match="led by 2"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (300, 3)


async def test_h17_a_view_that_lags_is_read_to_its_end_first(rig: Rig) -> None:
    """Another leader raised the start and deleted a segment; we have not read it yet."""
    expire(rig)
    rig.settings.lags = rig.ledger.lags = True
    first = rig.ledger.view.in_state(FINISHED)[0].metadata
    rig.remote_start(100)
    for state, previous in ((DELETING, 1), (DELETED, 2)):
        rig.ledger.write(
            first.in_state(state, event_timestamp_ms=0, broker_id=2),
            previous=previous,
            writer=OTHER_WRITER,
        )
    rig.ledger.write(None, segment_id=first.segment_id, previous=3, writer=OTHER_WRITER)
    await rig.expiry.run(rig.led)
    assert start_of(rig) == 300
    assert [one.start_offset for one in rig.audit.deleted] == [100, 200]


@pytest.mark.parametrize("error", [Unavailable("the store is away"), Fenced("it is refused")])
async def test_a_store_that_does_not_delete_is_asked_again_by_the_next_run(
    rig: Rig, error: RemoteStorageError
) -> None:
    expire(rig)

    def refuse(operation: str) -> None:
        raise error

    rig.store.before = refuse
    with pytest.raises(type(error)):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (300, 3)
    assert not rig.audit.deleted
    rig.store.before = lambda _: None
    await rig.expiry.run(rig.led)
    check_gone(rig)
    assert rig.audit.starts == [300]


async def test_a_deletion_that_cannot_be_audited_is_not_forgotten_by_the_ledger(rig: Rig) -> None:
    expire(rig)
    writes = 0

    def full() -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise Unavailable("the audit log cannot be written")

    rig.audit.before_write = full
    with pytest.raises(Unavailable, match="audit log"):
        await rig.expiry.run(rig.led)
    assert [one.state for one in rig.ledger.view.entries.values()] == [DELETING] * 3
    await rig.expiry.run(rig.led)
    check_gone(rig)
    assert len(rig.audit.deleted) == 3


async def test_a_raise_that_cannot_be_audited_does_not_happen(rig: Rig) -> None:
    expire(rig)

    def full() -> None:
        raise Unavailable("the audit log cannot be written")

    rig.audit.before_write = full
    with pytest.raises(Unavailable, match="audit log"):
        await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_a_run_that_is_cancelled_at_any_step_is_finished_by_the_next_leader(
    tmp_path: Path,
) -> None:
    """No object goes before the start is raised, and none stays for good."""
    for step in range(1, 200):
        checkpoints = Checkpoints()
        rig = await made_at(tmp_path / str(step), checkpoints)
        expire(rig)
        was_cancelled = await cancelled_at(checkpoints, step, rig.expiry.run(rig.led))
        assert start_of(rig) in (0, 300)
        if start_of(rig) == 0:
            assert stored(rig) == 3
        kinds = {one.state for one in rig.ledger.view.entries.values()}
        if FINISHED in kinds:
            assert stored(rig) >= 1
        rig.ledger.restart()
        await expiration_of(rig).run(rig.led)
        await expiration_of(rig).run(rig.led)
        check_gone(rig)
        if not was_cancelled:
            assert step > 30
            return
    pytest.fail("the run never came to its end")


async def test_a_zombie_leader_deletes_nothing_above_the_start(rig: Rig) -> None:
    """It wakes up with its plan while a new leader works under a longer retention."""
    expire(rig)
    asleep, awake = asyncio.Event(), asyncio.Event()
    plain = rig.snapshots.check_leadership

    async def sleeps(led: object) -> object:
        if not asleep.is_set() and rig.audit.starts:
            asleep.set()
            await awake.wait()
        return await plain(led)  # type: ignore[arg-type]

    rig.snapshots.check_leadership = sleeps  # type: ignore[method-assign, assignment]
    run = asyncio.ensure_future(rig.expiry.run(rig.led))
    await asleep.wait()
    rig.begin_epoch(1, 350, leader=2)
    rig.settings.write(
        StartRecord(
            partition=PARTITION.key, remote_log_start_offset=0, cause="enable", decided_epoch=1
        ),
        epoch=1,
    )
    awake.set()
    with pytest.raises(Fenced):
        await run
    assert (start_of(rig), stored(rig)) == (0, 3)


async def test_what_a_raised_start_has_ended_goes_with_unlimited_retention_too(rig: Rig) -> None:
    """As after `rlm topics adopt-log-start`, or a DeleteRecords."""
    rig.remote_start(250)
    await rig.expiry.run(rig.led)
    assert [one.start_offset for one in rig.audit.deleted] == [0, 100]
    assert set(rig.audit.causes) == {"below the remote log start"}
    assert start_of(rig) == 250
    assert stored(rig) == 1


async def test_ended_records_leave_the_broker_too_in_mode_tier(rig: Rig) -> None:
    expire(rig)
    for _ in range(2):
        await expiration_of(rig).run(rig.led)
    check_gone(rig)
    assert rig.broker.log_start_offset == 300


async def test_nothing_in_the_broker_changes_in_mode_copy(rig: Rig) -> None:
    """Its own retention frees its disk; readers get nothing below the start from the proxy."""
    rig.enable(mode="copy", trim=False, total=SHORT)
    for _ in range(2):
        await expiration_of(rig).run(rig.led)
    check_gone(rig)
    assert rig.broker.log_start_offset == 0


async def test_a_kept_topic_keeps_its_data(rig: Rig) -> None:
    expire(rig)
    adopted = rig.settings.view.topic(PARTITION.topic_id)
    assert adopted is not None
    rig.settings.write(replace(adopted, state="kept"))
    await rig.expiry.run(rig.led)
    assert (start_of(rig), stored(rig)) == (0, 3)


@pytest.mark.parametrize("last", [99, 100])
async def test_only_segments_that_end_below_the_start_are_in_the_batch(rig: Rig, last: int) -> None:
    found: list[RemoteLogSegmentMetadata] = []
    rig.ledger.before_publish = found.append
    rig.remote_start(last)
    await rig.expiry.run(rig.led)
    assert bool(found) is (last == 100)


async def test_h16_a_service_that_died_with_a_wrong_clock_stops_nothing(rig: Rig) -> None:
    rig.heartbeat_of(2, time_ms=rig.clock.now + 31_536_000_000)
    rig.clock.advance(60_001)
    rig.heartbeat()
    expire(rig)
    await rig.expiry.run(rig.led)
    check_gone(rig)
