"""The trim task: what is asked, written and seen before records go (H1-H5, H8, H11, H13)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import ExpectedSegment, SegmentPresence
from kip405.errors import Corrupt, Fenced, Invalid, NotFound, Unavailable
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.settings_records import (
    DivergenceRecord,
    FreezeRecord,
    HistoryRecord,
    SettingsRecord,
    TrimRecord,
)
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.rig import Rig
from tests.rlm.plans.views import lineage

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments of 100 copied, the active one from 300 to 350."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


def reason(rig: Rig) -> str:
    return rig.trim.statuses[PARTITION.key].reason


async def test_copied_segments_are_trimmed_after_the_intent_was_written(rig: Rig) -> None:
    def intent_is_there() -> None:
        intent = rig.settings.view.trim(PARTITION.key)
        assert intent is not None
        assert intent.bound == 300

    rig.broker.before_delete = intent_is_there
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    status = rig.trim.statuses[PARTITION.key]
    assert (status.trimmed_to, status.local_log_start_offset, status.alarm) == (300, 300, None)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h01_our_own_trim_is_no_foreign_move(rig: Rig) -> None:
    await rig.trim.run(rig.led)
    rig.disk.epochs({0: 300})
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start is None
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0


async def test_h01_a_foreign_move_is_an_alarm_and_changes_nothing_remote(rig: Rig) -> None:
    before, records = dict(rig.store.objects), len(rig.ledger.log)
    rig.broker.log_start_offset = 120
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start == 120
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0
    assert (rig.store.objects, len(rig.ledger.log)) == (before, records)


async def test_h01_in_mode_copy_the_broker_may_move_its_start(rig: Rig) -> None:
    rig.enable(mode="copy")
    rig.broker.log_start_offset = 120
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start is None
    assert rig.broker.deleted == []


async def test_h02_below_the_remote_start_is_deleted_with_trim_off_too(rig: Rig) -> None:
    rig.enable(trim=False)
    rig.remote_start(150)
    rig.store.objects.clear()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [150]
    assert rig.settings.view.trim(PARTITION.key) is None


async def test_h03_a_disputed_segment_ends_the_bound(rig: Rig) -> None:
    second = rig.ledger.view.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)[1]
    rig.ledger.write(second.metadata, previous=3, writer=OTHER_WRITER)
    assert rig.ledger.view.entries[second.metadata.segment_id.id].disputed
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100]


async def test_h03_a_resurrected_segment_without_objects_is_not_trimmed_on(rig: Rig) -> None:
    rig.broker.ends_at(900)
    rig.disk.segment(300, 800)
    rig.disk.active(800, 900)
    zombie = metadata(99, 300, 800, {0: 300})
    real = rig.ledger.view.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)[0].metadata
    rig.ledger.copied(replace(zombie, custom_metadata=real.custom_metadata))
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert "refused" in (rig.trim.statuses[PARTITION.key].alarm or "")


async def test_h11_a_refusal_is_an_error_also_where_the_partition_is_led_elsewhere_by_then(
    rig: Rig,
) -> None:
    rig.store.objects.clear()
    stat = rig.store.stat

    async def slowly(segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        rig.trim.forget(PARTITION.key)
        return await stat(segments)

    rig.store.stat = slowly  # type: ignore[method-assign]
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert not rig.trim.statuses
    assert rig.broker.deleted == []


async def test_h04_only_the_leaders_lineage_is_trimmed(rig: Rig) -> None:
    """Epochs: 0 copied to 300; an unclean leader of epoch 2 began at 220."""
    rig.broker.elect(1, 2)
    rig.disk.epochs({0: 0, 2: 220})
    rig.disk.file(300, ".log").unlink()
    rig.disk.log(200, 220)
    rig.disk.segment(220, 500, epoch=2)
    rig.disk.file(220, ".snapshot").write_bytes(b"x")
    rig.disk.active(500, 600, epoch=2)
    rig.broker.ends_at(600)
    rig.broker.log = b"".join(
        rig.disk.file(base, ".log").read_bytes() for base in (0, 100, 200, 220, 500)
    )
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [220]


async def test_h04_an_emptied_directory_is_frozen_until_an_operator_adopts(rig: Rig) -> None:
    for path in rig.disk.path.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    rig.broker.elect(1, 3)
    rig.disk.epochs({3: 0})
    rig.broker.log = b""
    rig.write_log(0, 40, end=60, epoch=3)
    await rig.trim.run(rig.led)
    await rig.copy.run(rig.led)
    assert rig.broker.deleted == []
    assert reason(rig) == "partition is frozen"
    assert rig.copy.statuses[PARTITION.key].frozen
    word = DivergenceRecord(
        partition=PARTITION.key, action="adopt", epoch=3, offset=0, cause="disk replaced"
    )
    rig.settings.write(word, epoch=3)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [40]


async def test_h04_new_records_below_the_remote_start_are_not_deleted(tmp_path: Path) -> None:
    """Enabled at 5000 with nothing copied yet; the disk was emptied, the log begins at 0 again."""
    rig = Rig(tmp_path)
    rig.remote_start(5_000)
    rig.broker.elect(1, 3)
    rig.disk.epochs({3: 0})
    rig.write_log(0, 40, end=60, epoch=3)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert "epoch 3 begins at 0" in (rig.trim.statuses[PARTITION.key].alarm or "")


async def test_h05_a_plan_is_dropped_when_leadership_changed(rig: Rig) -> None:
    led = rig.led
    rig.settings.after_publish = lambda: rig.broker.elect(2, 1)
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await rig.trim.run(led)
    assert rig.broker.deleted == []


async def test_h05_a_plan_is_dropped_when_it_is_too_old(rig: Rig) -> None:
    rig.settings.after_publish = lambda: rig.clock.advance(10_001)
    with pytest.raises(Unavailable, match=r"trim\.plan\.deadline\.ms"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h05_a_plan_is_dropped_when_the_lineage_changed(rig: Rig) -> None:
    rig.settings.after_publish = lambda: rig.disk.epochs({0: 10})
    with pytest.raises(Fenced, match="leader epochs changed"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h05_a_freeze_that_comes_last_still_counts(rig: Rig) -> None:
    freeze = FreezeRecord(topic_id=None, stopped=("trim", "delete", "sweep"), by="ops", why="look")
    rig.settings.after_publish = lambda: rig.settings.write(freeze)
    with pytest.raises(Fenced, match="frozen by command"):
        await rig.trim.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert reason(rig) == "frozen by command"


async def test_h05_settings_that_change_last_still_count(rig: Rig) -> None:
    """`trim off` or `disable` returned to the operator: nothing is trimmed after it."""
    rig.settings.after_publish = lambda: rig.enable(trim=False)
    with pytest.raises(Fenced, match="trim is off"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h05_a_freeze_not_read_yet_is_read_before_the_trim(rig: Rig) -> None:
    freeze = FreezeRecord(topic_id=None, stopped=("trim", "delete", "sweep"), by="ops", why="look")
    plain = rig.settings.barrier

    async def read_up(deadline_ms: int) -> None:
        if rig.settings.published and isinstance(rig.settings.published[-1], TrimRecord):
            rig.settings.write(freeze)
        await plain(deadline_ms)

    rig.settings.barrier = read_up  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="frozen by command"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h05_out_of_range_drops_the_plan(rig: Rig) -> None:
    rig.broker.before_delete = lambda: rig.broker.ends_at(120)
    with pytest.raises(Fenced, match="OFFSET_OUT_OF_RANGE"):
        await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].trimmed_to is None


async def test_h05_timed_out_but_applied_is_a_success(rig: Rig) -> None:
    def time_out() -> None:
        raise Unavailable("delete records: REQUEST_TIMED_OUT (7)")

    rig.broker.after_delete = time_out
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].trimmed_to == 300


async def test_h05_timed_out_and_not_applied_is_none(rig: Rig) -> None:
    def time_out() -> None:
        raise Unavailable("delete records: REQUEST_TIMED_OUT (7)")

    rig.broker.before_delete = time_out
    with pytest.raises(Unavailable, match="REQUEST_TIMED_OUT"):
        await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].trimmed_to is None


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
async def test_h11_an_object_that_is_gone_forbids_the_trim(rig: Rig, suffix: str) -> None:
    del rig.store.objects[rig.names(suffix)[1]]
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.settings.view.trim(PARTITION.key) is None
    assert rig.trim.statuses[PARTITION.key].alarm


async def test_h11_a_truncated_object_forbids_the_trim(rig: Rig) -> None:
    name = rig.names(".log")[2]
    rig.store.objects[name] = rig.store.objects[name][:-1]
    with pytest.raises(NotFound, match="different"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h11_another_store_forbids_the_trim(rig: Rig) -> None:
    assert rig.store.identity is not None
    rig.store.identity = replace(rig.store.identity, store_id=OTHER_WRITER)
    with pytest.raises(Invalid, match="the plugin serves store"):
        await rig.trim.run(rig.led)
    rig.store.identity = None
    with pytest.raises(Invalid, match="no identity"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h13_copies_of_another_log_are_not_trimmed_on(rig: Rig) -> None:
    rig.disk.segment(200, 300, fill=b"other")
    rig.broker.log = b"".join(
        rig.disk.file(base, ".log").read_bytes() for base in (0, 100, 200, 300)
    )
    with pytest.raises(Corrupt, match="is not the broker's"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h14_nothing_is_trimmed_while_broker_retention_is_bounded(rig: Rig) -> None:
    rig.broker.config["retention.bytes"] = "1000"
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].detail == "retention.bytes=1000"


async def test_a_replica_without_live_service_forbids_the_trim(rig: Rig) -> None:
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1, 2))
    await rig.trim.run(rig.led)
    assert reason(rig) == "a broker with a replica has no live service"
    rig.heartbeat(2)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h19_a_trim_does_not_pass_a_share_group(rig: Rig) -> None:
    rig.share_groups.lowest = 130
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100]


async def test_h19_a_share_group_that_begins_after_the_plan_stops_the_trim(rig: Rig) -> None:
    rig.share_groups.begun = 130
    with pytest.raises(Fenced, match="at most 100 may be deleted to by now"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_a_freeze_while_share_groups_are_asked_for_stops_the_trim(rig: Rig) -> None:
    """All brokers are asked: it may take long."""

    async def frozen_meanwhile(topic: str) -> Mapping[int, int]:
        rig.settings.write(FreezeRecord(topic_id=None, stopped=("trim",), by="op", why="x"))
        return {}

    rig.share_groups.starts_now = frozen_meanwhile  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="frozen by command"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h27_a_lagging_replica_holds_the_trim_for_a_while(rig: Rig) -> None:
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1,))
    rig.heartbeat(2)
    await rig.trim.run(rig.led)
    assert reason(rig) == "waiting for replicas to catch up"
    rig.clock.advance(3_600_000)
    rig.heartbeat()
    rig.heartbeat(2)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h06_a_ledger_with_a_problem_stops_the_trim(rig: Rig) -> None:
    rig.ledger.problem = "topic was recreated"
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].detail == "topic was recreated"


async def test_h35_a_topic_that_became_compacted_is_not_trimmed(rig: Rig) -> None:
    rig.broker.config["cleanup.policy"] = "compact,delete"
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h04_the_intent_carries_the_epoch_of_its_plan(rig: Rig) -> None:
    await rig.trim.run(rig.led)
    assert rig.settings.published[-1] == TrimRecord(
        partition=PARTITION.key, bound=300, planned_epoch=0
    )


async def with_a_dead_attempt(path: Path) -> tuple[Rig, RemoteLogSegmentMetadata]:
    """Epoch 1 began at 100 on another broker; ours never had it: 0 up to 200, then 2. A copy of
    epoch 1 was stored, but its FINISHED is not written.
    """
    rig = Rig(path)
    rig.write_log(0, 100, 200, end=200)
    rig.disk.file(200, ".log").unlink()
    rig.write_log(200, 300, end=350, epoch=2)
    rig.disk.epochs({0: 0, 2: 200})
    dead = metadata(99, 100, 250, {1: 100})
    started = dead.in_state(STARTED, event_timestamp_ms=0, broker_id=2)
    rig.remote_start(0)
    rig.ledger.write(started, epoch=1, writer=OTHER_WRITER)
    rig.broker.elect(1, 2)
    await rig.copy.run(rig.led)
    return rig, dead


async def test_h08_a_dead_history_stays_dead_when_its_copy_is_found_after_the_trim(
    tmp_path: Path,
) -> None:
    rig, dead = await with_a_dead_attempt(tmp_path)
    before = (await rig.snapshots.take(rig.led)).lineage
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [type(one) for one in rig.settings.published[-2:]] == [HistoryRecord, TrimRecord]
    rig.disk.epochs({2: 300})
    rig.ledger.write(dead, epoch=2, previous=0)  # adopted from its manifest
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.lineage == before
    found = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
    assert [(one.metadata.start_offset, one.next_offset) for one in found] == [
        (0, 100),
        (100, 200),
        (200, 300),
    ]
    assert dead not in [one.metadata for one in found]


async def test_h08_no_trim_before_the_history_is_published(tmp_path: Path) -> None:
    rig, _ = await with_a_dead_attempt(tmp_path)
    publish = rig.settings.publish

    async def refuse(record: SettingsRecord, leader_epoch: int = -1) -> None:
        if isinstance(record, HistoryRecord):
            raise Unavailable("the settings topic takes no records")
        await publish(record, leader_epoch)

    rig.settings.publish = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="takes no records"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.settings.view.trim(PARTITION.key) is None


async def test_h08_a_plan_is_dropped_when_another_history_was_published(tmp_path: Path) -> None:
    rig, _ = await with_a_dead_attempt(tmp_path)
    other = HistoryRecord(partition=PARTITION.key, frozen=None, lineage=lineage({1: 0, 3: 90}))

    def overrule() -> None:
        if isinstance(rig.settings.published[-1], TrimRecord):
            rig.settings.write(other, epoch=3)

    rig.settings.after_publish = overrule
    with pytest.raises(Fenced, match="another history"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h08_the_last_record_stays_and_its_epoch_with_it(tmp_path: Path) -> None:
    """A log without records takes any epoch for its first: it would be of no history."""
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, end=200)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100]


async def test_h08_a_history_that_cannot_be_read_stops_snapshots_of_a_trimmed_log(rig: Rig) -> None:
    later = json.dumps({"v": 2, "kind": "history"}).encode()
    rig.settings.view.apply(key=f"history/{PARTITION.key}".encode(), value=later, offset=9)
    await rig.snapshots.take(rig.led)  # the log knows all there is
    rig.disk.epochs({0: 100})
    with pytest.raises(Unavailable, match="history that was published cannot be read"):
        await rig.snapshots.take(rig.led)
