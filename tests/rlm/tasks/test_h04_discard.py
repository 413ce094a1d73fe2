"""H4: a frozen partition whose remote part was given up goes on from the leader's log alone, and
nothing of its former remote part is ever taken for a part of that log.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import structlog

from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from kip405.ids import MAX_OFFSET
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlm.plans.history import published_lineage
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.discard import CAUSE_DISCARDED
from rlmm.ledger import Hole
from rlmm.records import LaterRecord
from rlmm.settings_records import (
    FreezeRecord,
    HolesRecord,
    SettingsRecord,
    StartRecord,
    TrimRecord,
)
from tests.builders.checkpoints import Checkpoints
from tests.builders.discards import DELAY_MS, discard_task, discards
from tests.builders.ledger import PARTITION, metadata
from tests.builders.rig import Rig

KEY = PARTITION.key
STARTED = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


class Site:
    """Five segments up to 500 were copied, the remote log starts at 150; then the disk was emptied:
    the log of epoch 2 begins at 0 again.
    """

    def __init__(self, path: Path, checkpoints: Checkpoints | None = None) -> None:
        self.rig = Rig(path, checkpoints=checkpoints)
        self.snapshots = self.rig.cached_snapshots()
        self.task = discard_task(self.rig, self.snapshots)
        self.discards = discards(self.rig, self.task)

    async def prepare(self) -> None:
        rig = self.rig
        rig.write_log(0, 100, 200, 300, 400, 500, end=550)
        await rig.copy.run(rig.led)
        rig.remote_start(150)
        rig.settings.write(TrimRecord(partition=KEY, bound=150, planned_epoch=0), epoch=0)
        hole = Hole(start=210, end=220, cause="lost")
        rig.settings.write(HolesRecord(partition=KEY, holes=(hole,)), epoch=0)
        for file in rig.disk.path.glob("0*"):
            file.unlink()
        rig.broker.elect(1, 2)
        self.log_of(2, {2: 0}, end=120)
        rig.heartbeat()
        await self.take()

    def log_of(self, epoch: int, epochs: dict[int, int], *, end: int) -> None:
        """The log has one batch row up to `end`, and these epochs."""
        rig = self.rig
        rig.broker.log = rig.disk.active(0, end, epoch=epoch) if end else b""
        rig.disk.epochs(epochs)
        rig.broker.log_start_offset = 0
        rig.broker.ends_at(end)

    async def take(self) -> PartitionSnapshot:
        return await self.snapshots.take(self.rig.led)

    async def run(self) -> bool:
        return await self.task.run_on(await self.take())

    async def decided(self) -> "Site":
        """The decision was made, and its delay is over."""
        await self.discards.decide(KEY, by="ada")
        self.rig.clock.advance(DELAY_MS)
        self.rig.heartbeat()
        return self

    def is_untouched(self) -> bool:
        """All five segments are there, and listed."""
        return len(self.rig.store.objects) == 15 and len(self.rig.ledger.view.entries) == 5

    def is_over(self) -> bool:
        """Nothing remote is left, nor any record of the deletion."""
        view = self.rig.settings.view
        return (
            not self.rig.store.objects
            and not self.rig.ledger.view.entries
            and self.rig.ledger.view.deletion is None
            and view.discard(KEY) is None
        )


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    await made.prepare()
    return made


async def test_h04_the_partition_goes_on_from_the_log_alone(site: Site) -> None:
    rig, view = site.rig, site.rig.settings.view
    plan = await site.discards.plan(KEY)
    assert (plan.remote.segments, plan.remote.records) == (5, 500)
    assert (plan.log_start_offset, plan.log_end_offset, plan.delay_ms) == (0, 120, DELAY_MS)
    await site.decided()
    assert await site.run()
    assert site.is_over()
    assert view.remote_log_start(KEY) == 0
    assert view.remote_log_start_epoch(KEY) == 2
    assert view.trim(KEY) is None and view.holes(KEY) == ()
    divergence = view.divergence(KEY)
    assert divergence is not None
    assert (divergence.action, divergence.epoch, divergence.offset) == ("discard", 2, 120)
    assert rig.audit.discarded == [("ada", 150, 0)]
    assert rig.audit.causes == [CAUSE_DISCARDED] * 5
    assert (await site.take()).frozen is None
    history = view.history(KEY)
    assert history is not None and history.frozen is None
    assert not await site.run()
    rig.write_log(0, 60, 120, end=180, epoch=2)
    rig.disk.epochs({2: 0})
    await rig.copy.run(rig.led)
    copied = sorted(one.metadata.next_offset for one in rig.ledger.view.entries.values())
    assert copied == [60, 120]


async def test_h04_what_turns_up_of_the_old_history_is_no_part_of_the_log(site: Site) -> None:
    """As `ledger rebuild`, `reconcile` or a zombie may list it again."""
    await (await site.decided()).run()
    rig = site.rig
    old = [metadata(70 + at, at * 100, at * 100 + 100, {0: at * 100}) for at in range(5)]
    rig.ledger.copied(*old)
    snapshot = await site.take()
    assert snapshot.frozen is None
    assert snapshot.ledger.usable(snapshot.lineage, MAX_OFFSET) == ()
    readers = published_lineage(rig.ledger.view, rig.settings.view.history(KEY))
    assert rig.ledger.view.usable(readers, MAX_OFFSET) == ()


async def test_nothing_happens_before_the_delay_is_over(site: Site) -> None:
    await site.decided()
    site.rig.clock.now -= 1
    assert not await site.run()
    assert site.is_untouched()
    (pending,) = site.discards.pending()
    assert (pending.topic, pending.record.by, pending.due_in_ms) == (PARTITION.topic, "ada", 1)
    assert site.discards.pending("another") == ()


async def test_undone_within_the_delay_everything_is_as_before(site: Site) -> None:
    await site.discards.decide(KEY, by="ada")
    frozen = (await site.take()).frozen
    assert frozen is not None and "ada gives up" in frozen.reason
    await site.discards.undo(KEY)
    site.rig.clock.advance(DELAY_MS)
    assert not await site.run()
    assert site.is_untouched()
    assert site.rig.settings.view.remote_log_start(KEY) == 150
    frozen = (await site.take()).frozen
    assert frozen is not None and "ada" not in frozen.reason
    with pytest.raises(NotFound, match="no discard is pending"):
        await site.discards.undo(KEY)


async def test_a_partition_that_is_not_frozen_keeps_what_is_remote(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.rig.write_log(0, 100, end=150)
    await site.rig.copy.run(site.rig.led)
    with pytest.raises(Invalid, match="is not frozen: its remote part is in use"):
        await site.discards.decide(KEY, by="ada")


async def test_a_decision_is_made_once(site: Site) -> None:
    await site.discards.decide(KEY, by="ada")
    with pytest.raises(Invalid, match="ada has discarded it already"):
        await site.discards.decide(KEY, by="bob")
    assert [one.record.by for one in site.discards.pending()] == ["ada"]


async def test_only_of_an_enabled_topic_whose_last_deletion_is_over(site: Site) -> None:
    site.rig.ledger.delete_partition(STARTED)
    with pytest.raises(Invalid, match="an earlier deletion is not over"):
        await site.discards.plan(KEY)
    site.rig.ledger.delete_partition(None)
    record = site.rig.settings.view.topic(KEY.topic_id)
    assert record is not None
    site.rig.settings.remove(record.key)
    with pytest.raises(Invalid, match="is not enabled"):
        await site.discards.plan(KEY)


@pytest.mark.parametrize("stopped", ["delete", "trim"])
async def test_g1_a_freeze_of_deletions_stops_it(site: Site, stopped: str) -> None:
    await site.decided()
    freeze = FreezeRecord(topic_id=None, stopped=(stopped,), by="me", why="test")
    site.rig.settings.write(freeze)
    assert await site.run() == (stopped == "trim")
    assert site.is_untouched() == (stopped == "delete")


async def test_g1_a_freeze_stops_it_between_its_steps(site: Site) -> None:
    await site.decided()
    freeze = FreezeRecord(topic_id=None, stopped=("delete",), by="me", why="test")
    site.rig.ledger.after_publish = lambda _: site.rig.settings.write(freeze)
    with pytest.raises(Fenced):
        await site.run()
    assert len(site.rig.store.objects) == 15
    site.rig.ledger.after_publish = lambda _: None
    site.rig.settings.remove("freeze")
    await site.run()
    assert site.is_over()


@pytest.mark.parametrize(
    "doubt",
    [
        lambda site: setattr(site.rig.ledger, "problem", "recreated"),
        lambda site: setattr(site.rig.settings, "problem", "unreadable"),
        lambda site: site.rig.ledger.state.apply_later(
            LaterRecord(partition=KEY, key=b"k", kind="api key 9", offset=10_000)
        ),
    ],
    ids=["ledger", "settings", "later version"],
)
async def test_h06_a_doubtful_ledger_stops_it(site: Site, doubt: Callable[[Site], None]) -> None:
    await site.decided()
    doubt(site)
    assert not await site.run()
    assert site.is_untouched()


async def test_h04_a_replica_that_has_the_records_leads_and_nothing_goes(site: Site) -> None:
    await site.decided()
    site.rig.broker.elect(1, 3)
    site.log_of(0, {0: 0, 3: 550}, end=560)
    with structlog.testing.capture_logs() as logs:
        assert not await site.run()
        assert not await site.run()
    assert [row["event"] for row in logs if row["event"] == "discard_held"] == ["discard_held"]
    assert site.is_untouched()
    assert (await site.take()).frozen is None
    await site.discards.undo(KEY)
    assert site.is_untouched()
    assert site.discards.pending() == ()


async def test_h05_another_leader_stops_it_before_any_object_goes(site: Site) -> None:
    await site.decided()
    site.rig.ledger.after_publish = lambda _: site.rig.broker.elect(2, 3)
    with pytest.raises(Fenced):
        await site.run()
    assert len(site.rig.store.objects) == 15


async def test_h04_a_log_that_has_grown_beyond_the_copies_stays_frozen(site: Site) -> None:
    """Then the freeze by its lineage ends by itself where the epochs do not show it."""
    await site.discards.decide(KEY, by="ada")
    for entry in tuple(site.rig.ledger.view.entries.values())[1:]:
        removed = entry.metadata.in_state(DELETED, event_timestamp_ms=0, broker_id=1)
        site.rig.ledger.write(removed, previous=2)
        site.rig.ledger.write(None, segment_id=removed.segment_id, previous=3)
    site.log_of(2, {2: 0}, end=900)
    frozen = (await site.take()).frozen
    assert frozen is not None
    await site.rig.copy.run(site.rig.led)
    assert len(site.rig.ledger.view.entries) == 1


async def test_h04_readers_of_the_remote_tier_alone_know_the_freeze_before_it_begins(
    site: Site,
) -> None:
    await site.decided()
    site.rig.settings.remove(f"history/{KEY}")
    raw = discard_task(site.rig)
    assert not await raw.run_on(await site.rig.snapshots.take(site.rig.led))
    assert site.is_untouched()
    assert await site.run()


async def test_an_undo_that_is_faster_keeps_everything(site: Site) -> None:
    await site.decided()

    def undone(state: RemotePartitionDeleteState) -> None:
        if state is STARTED:
            site.rig.settings.remove(f"discard/{KEY}")

    site.rig.ledger.after_partition_delete = undone
    await site.run()
    assert site.is_untouched()
    assert not await site.run()
    with pytest.raises(Invalid, match="an earlier deletion is not over"):
        await site.discards.plan(KEY)
    await site.discards.undo(KEY)
    assert site.is_untouched()
    assert site.rig.ledger.view.deletion is None


async def test_h04_what_another_leader_has_copied_meanwhile_stays(site: Site) -> None:
    """It led with another log, and this one leads again without having followed it."""
    await site.decided()
    site.rig.ledger.copied(metadata(99, 550, 600, {0: 550, 3: 560}))
    site.rig.broker.elect(1, 5)
    site.log_of(2, {2: 0, 5: 120}, end=120)
    assert (await site.take()).frozen is not None
    with structlog.testing.capture_logs() as logs:
        assert not await site.run()
    assert "copied more since" in next(row["why"] for row in logs if row["event"] == "discard_held")
    assert len(site.rig.store.objects) == 15


async def test_h04_what_another_leader_has_trimmed_meanwhile_stays(site: Site) -> None:
    """It led with the old log, and trimmed that as its records were remote too: now only there."""
    await site.decided()
    site.rig.settings.write(TrimRecord(partition=KEY, bound=400, planned_epoch=3), epoch=3)
    site.rig.broker.elect(1, 5)
    site.log_of(2, {2: 0, 5: 120}, end=120)
    with structlog.testing.capture_logs() as logs:
        assert not await site.run()
    (why,) = [row["why"] for row in logs if row["event"] == "discard_held"]
    assert "has trimmed its log since" in why
    assert site.is_untouched()


async def test_an_undo_comes_too_late_while_segments_go(site: Site) -> None:
    await site.decided()
    site.rig.ledger.delete_partition(STARTED)
    with pytest.raises(Fenced, match="being deleted already"):
        await site.discards.undo(KEY)
    assert site.discards.pending() != ()


async def test_an_undo_keeps_the_rest_where_another_log_leads(site: Site) -> None:
    await site.decided()
    site.rig.ledger.delete_partition(STARTED)
    site.rig.broker.elect(1, 3)
    site.log_of(0, {0: 0, 3: 550}, end=560)
    frozen = (await site.take()).frozen
    assert frozen is not None and "for another log" in frozen.reason
    await site.discards.undo(KEY)
    await site.run()
    assert site.is_untouched()
    assert (await site.take()).frozen is None


async def test_nothing_is_undone_when_all_is_deleted_whatever_log_leads(site: Site) -> None:
    """Then only the settings are left to be mended, the former start among them (H2)."""
    await site.decided()
    site.rig.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
    site.rig.broker.elect(1, 3)
    site.log_of(0, {0: 0, 3: 550}, end=560)
    with pytest.raises(Fenced, match="deleted already"):
        await site.discards.undo(KEY)


class WatchedLock(asyncio.Lock):
    """`asked` is set when somebody wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        self.asked.set()
        return await super().acquire()


async def test_an_undo_waits_while_the_deletion_begins(site: Site) -> None:
    await site.decided()
    lock = site.task.lock = WatchedLock()
    undo = asyncio.ensure_future(discards(site.rig, site.task).undo(KEY))
    async with lock:
        lock.asked.clear()
        await asyncio.wait_for(lock.asked.wait(), 60)
        site.rig.ledger.delete_partition(STARTED)
    with pytest.raises(Fenced, match="being deleted already"):
        await undo


async def test_the_deletion_waits_while_it_is_undone(site: Site) -> None:
    await site.decided()
    lock = site.task.lock = WatchedLock()
    run = asyncio.ensure_future(site.run())
    async with lock:
        lock.asked.clear()
        await asyncio.wait_for(lock.asked.wait(), 60)
        site.rig.settings.remove(f"discard/{KEY}")
    with pytest.raises(Fenced, match="taken back"):
        await run
    assert site.rig.ledger.view.deletion_state is not STARTED
    assert site.is_untouched()


async def test_h05_who_was_overtaken_by_another_leader_writes_nothing(site: Site) -> None:
    await site.decided()
    site.rig.ledger.write(metadata(99, 120, 130, {9: 120}, DELETED), epoch=9)
    with pytest.raises(Fenced):
        await site.run()
    assert len(site.rig.store.objects) == 15
    assert site.rig.ledger.view.deletion_state is not STARTED


async def test_h02_what_a_user_deleted_in_this_log_stays_deleted(site: Site) -> None:
    record = StartRecord(
        partition=KEY, remote_log_start_offset=160, cause="delete-records", decided_epoch=2
    )
    site.rig.settings.write(record, epoch=2)
    await (await site.decided()).run()
    assert site.rig.settings.view.remote_log_start(KEY) == 160


@pytest.mark.parametrize("is_copied_meanwhile", [False, True])
async def test_h02_nor_does_it_come_back_where_the_old_start_is_removed_and_a_crash_follows(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_copied_meanwhile: bool
) -> None:
    """The log that stays has records that a user deleted under epoch 1, up to 80; all that is known
    of that is the old start.
    """
    rig = site.rig
    record = StartRecord(
        partition=KEY, remote_log_start_offset=160, cause="delete-records", decided_epoch=1
    )
    rig.settings.write(record, epoch=1)
    site.log_of(2, {1: 0, 2: 80}, end=120)
    await site.decided()

    async def killed(record: SettingsRecord, leader_epoch: int = -1) -> None:
        if isinstance(record, StartRecord):
            raise Unavailable("the process was killed")
        await publish(record, leader_epoch)

    publish = rig.settings.publish
    with monkeypatch.context() as patched:
        patched.setattr(rig.settings, "publish", killed)
        with pytest.raises(Unavailable, match="killed"):
            await site.run()
    assert rig.settings.view.remote_log_start(KEY) is None
    if is_copied_meanwhile:  # a copy task writes a start that is missing
        await rig.copy.run(rig.led)
        assert rig.settings.view.remote_log_start(KEY) == 0
    await site.run()
    assert site.is_over()
    assert rig.settings.view.remote_log_start(KEY) == 80


async def test_g4_a_start_that_goes_up_is_raised_before_anything_is_deleted(site: Site) -> None:
    """The log that stays begins above the remote log start."""
    site.log_of(2, {2: 200}, end=250)
    site.rig.broker.log_start_offset = 200
    await site.decided()
    at: list[int | None] = []
    view = site.rig.settings.view
    site.rig.ledger.before_publish = lambda _: at.append(view.remote_log_start(KEY))
    await site.run()
    assert set(at) == {200}
    assert site.is_over()
    assert site.rig.audit.starts == [200]


async def test_an_interruption_anywhere_is_continued(tmp_path: Path) -> None:
    """Cancelled at every ninth step, and continued by another process."""
    steps = await interrupted(tmp_path / "whole", None)
    assert steps > 100
    for step in range(1, steps, 9):
        await interrupted(tmp_path / str(step), step)


async def interrupted(path: Path, at: int | None) -> int:
    checkpoints = Checkpoints()
    site = Site(path, checkpoints)
    await site.prepare()
    rig = (await site.decided()).rig
    ledger, settings, audit = rig.ledger, rig.settings, rig.audit
    rig.ledger, rig.settings = checkpoints.around(ledger), checkpoints.around(settings)
    rig.audit = checkpoints.around(audit)
    task, snapshot = discard_task(rig, site.snapshots), await site.take()
    checkpoints.count, checkpoints.cancel_at = 0, at

    async def run() -> None:
        await task.run_on(snapshot)

    checkpoints.task = running = asyncio.ensure_future(run())
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled() == (at is not None)
    checkpoints.cancel_at, steps = None, checkpoints.count
    rig.ledger, rig.settings, rig.audit = ledger, settings, audit
    is_frozen = (await site.take()).frozen is not None
    assert is_frozen or site.is_over()
    await site.run()
    assert site.is_over(), at
    assert rig.settings.view.remote_log_start(KEY) == 0
    assert (await site.take()).frozen is None
    return steps
