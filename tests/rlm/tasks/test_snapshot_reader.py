"""A snapshot: in which order it samples, what it asks again, and that its views are not stale (H4,
H13, H17, H35).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import Uuid
from rlm.plans.copy import TopicState
from rlmm.settings_records import DivergenceRecord, StartRecord
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, end=250)
    return made


def once(what: Callable[[], None]) -> Callable[[], None]:
    """Done at the first call, nothing at later ones."""
    left = [what]
    return lambda: left.pop()() if left else None


def at(question: str, what: Callable[[], None]) -> Callable[[str], None]:
    """Done when the first answer to this question is on its way."""
    first = once(what)
    return lambda asked: first() if asked == question else None


async def test_h17_a_snapshot_knows_what_others_have_published_in_the_ledger(rig: Rig) -> None:
    rig.ledger.lags = True
    rig.ledger.copied(metadata(7, 0, 100, {0: 0}), writer=OTHER_WRITER)
    assert not rig.ledger.view.entries
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.ledger.highest_end(snapshot.lineage) == 100
    assert rig.ledger.barriers == [PARTITION.key]


async def test_h17_a_snapshot_knows_what_others_have_published_in_the_settings(rig: Rig) -> None:
    rig.settings.lags = True
    rig.remote_start(40)
    assert rig.settings.view.remote_log_start(PARTITION.key) is None
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.remote_log_start_offset == 40


async def test_h17_a_snapshot_that_cannot_pass_a_barrier_is_none(rig: Rig) -> None:
    def away() -> None:
        raise Unavailable("barrier: nobody answers")

    rig.ledger.on_barrier = away
    with pytest.raises(Unavailable, match="nobody answers"):
        await rig.snapshots.take(rig.led)
    rig.ledger.on_barrier = lambda: None
    rig.settings.on_barrier = away
    with pytest.raises(Unavailable, match="nobody answers"):
        await rig.snapshots.take(rig.led)


async def test_h04_the_disk_is_at_least_as_new_as_the_last_stable_offset(rig: Rig) -> None:
    """A segment is closed right after the last stable offset was answered."""

    def roll() -> None:
        rig.disk.segment(200, 300)
        rig.disk.active(300, 310)
        rig.broker.ends_at(310)

    rig.broker.after_answer = at("last stable offset", roll)
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.watermarks.last_stable_offset == 250
    assert [one.base_offset for one in snapshot.log.segments] == [0, 100, 200, 300]


async def test_h04_the_last_stable_offset_is_the_oldest_of_the_positions(rig: Rig) -> None:
    rig.broker.after_answer = at("high watermark", lambda: rig.broker.ends_at(400))
    snapshot = await rig.snapshots.take(rig.led)
    assert (snapshot.watermarks.last_stable_offset, snapshot.watermarks.high_watermark) == (
        250,
        250,
    )


async def test_h17_the_ledger_is_at_least_as_new_as_the_disk(rig: Rig) -> None:
    rig.ledger.lags = True
    finished = metadata(7, 0, 100, {0: 0})
    rig.log_dirs.after_scan = once(lambda: rig.ledger.copied(finished, writer=OTHER_WRITER))
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.ledger.highest_end(snapshot.lineage) == 100


async def test_h17_the_settings_are_at_least_as_new_as_the_disk(rig: Rig) -> None:
    rig.settings.lags = True
    rig.log_dirs.after_scan = once(lambda: rig.remote_start(40))
    assert (await rig.snapshots.take(rig.led)).remote_log_start_offset == 40


async def test_h04_a_copy_finished_meanwhile_does_not_reach_beyond_the_logs_end(rig: Rig) -> None:
    """The log goes on and another task copies what was just written, before the ledger is read."""

    def goes_on() -> None:
        rig.broker.ends_at(400)
        rig.ledger.copied(metadata(7, 0, 350, {0: 0}))

    rig.ledger.on_barrier = once(goes_on)
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.log_end_offset == 400
    assert snapshot.frozen is None


async def test_h13_leadership_is_checked_by_epoch(rig: Rig) -> None:
    """We lead again, under a newer epoch: what was planned under the older one is void."""
    led = rig.led
    rig.begin_epoch(1, 250)
    with pytest.raises(Fenced, match="led by 1 under epoch 1"):
        await rig.snapshots.check_leadership(led)
    with pytest.raises(Fenced, match="led by 1 under epoch 1"):
        await rig.snapshots.take(led)
    await rig.snapshots.check_leadership(rig.led)


async def test_h13_leadership_is_checked_by_node(rig: Rig) -> None:
    led = rig.led
    rig.broker.elect(2, led.leader_epoch)
    with pytest.raises(Fenced, match="led by 2 under epoch 0"):
        await rig.snapshots.check_leadership(led)


async def test_h13_leadership_is_checked_by_topic_id(rig: Rig) -> None:
    """Deleted and recreated under its name: epoch 0 of node 1 again."""
    rig.broker.topic_id = Uuid(b"\x77" * 16)
    with pytest.raises(Fenced, match="recreated"):
        await rig.snapshots.check_leadership(rig.led)


async def test_h13_a_topic_or_partition_that_is_gone_is_led_by_nobody(rig: Rig) -> None:
    led = rig.led
    rig.broker.partition = replace(rig.broker.partition, partition=5)
    with pytest.raises(Fenced, match="lost the partition"):
        await rig.snapshots.check_leadership(led)
    rig.broker.exists = False
    with pytest.raises(Fenced, match="the topic is gone"):
        await rig.snapshots.check_leadership(led)


async def test_h27_replicas_and_isr_are_those_of_the_snapshot(rig: Rig) -> None:
    led = rig.led
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1,))
    snapshot = await rig.snapshots.take(led)
    assert (snapshot.led.replicas, snapshot.led.isr) == ((1, 2), (1,))


async def test_h13_the_disk_must_be_of_the_epoch_that_is_led(rig: Rig) -> None:
    """The epoch file is newer than the leadership we know, too."""
    rig.disk.epochs({0: 0, 3: 250})
    with pytest.raises(Unavailable, match="ends with epoch 3, leadership is of epoch 0"):
        await rig.snapshots.take(rig.led)


async def test_h02_a_start_of_another_epoch_shows_its_epoch(rig: Rig) -> None:
    rig.begin_epoch(2, 250)
    rig.remote_start(40)
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.lineage.epoch_for_offset(249) == 0
    assert snapshot.lineage.epoch_for_offset(250) == 2
    assert rig.settings.view.remote_log_start_epoch(PARTITION.key) == 2


async def test_h02_a_start_decided_elsewhere_is_not_written_again(rig: Rig) -> None:
    """Another service set it a moment ago, and our view had not read it."""
    rig.settings.lags = True
    record = StartRecord(partition=PARTITION.key, remote_log_start_offset=120, cause="retention")
    rig.settings.write(record, epoch=0)
    await rig.copy.run(rig.led)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 120
    assert rig.settings.published == []


async def test_h04_what_is_not_committed_is_not_lost(rig: Rig) -> None:
    """Copies are compared with the log's end, not with the high watermark."""
    rig.broker.log_end_offset = 400
    rig.ledger.copied(metadata(7, 0, 300, {0: 0}))
    snapshot = await rig.snapshots.take(rig.led)
    assert (snapshot.log_end_offset, snapshot.watermarks.high_watermark) == (400, 250)
    assert snapshot.frozen is None


@pytest.mark.parametrize(
    ("epoch", "offset", "is_frozen"), [(7, 0, False), (7, 400, True), (6, 0, False), (4, 0, True)]
)
async def test_h04_an_operators_word_holds_for_its_epoch_and_where_its_log_ended(
    tmp_path: Path, epoch: int, offset: int, is_frozen: bool
) -> None:
    """Epoch 5 was copied up to 1000; the disk was emptied and epoch 8 began at 0."""
    rig = Rig(tmp_path)
    for number in range(10):
        start = number * 100
        rig.ledger.copied(metadata(number + 1, start, start + 100, {5: start}))
    rig.broker.elect(1, 8)
    rig.disk.epochs({8: 0})
    rig.write_log(0, 40, end=60, epoch=8)
    assert (await rig.snapshots.take(rig.led)).frozen is not None
    word = DivergenceRecord(
        partition=PARTITION.key, action="adopt", epoch=epoch, offset=offset, cause="new disk"
    )
    rig.settings.write(word, epoch=epoch)
    assert ((await rig.snapshots.take(rig.led)).frozen is not None) is is_frozen


async def test_h35_a_snapshot_says_how_the_topic_is_configured_now(rig: Rig) -> None:
    assert (await rig.snapshots.take(rig.led)).topic.state == TopicState(
        enabled=True, internal=False, cleanup_policy="delete", native_tiering=False
    )
    rig.broker.config["remote.storage.enable"] = "true"
    rig.broker.config["cleanup.policy"] = "compact"
    rig.broker.internal = True
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    rig.settings.write(replace(record, state="kept"))
    assert (await rig.snapshots.take(rig.led)).topic.state == TopicState(
        enabled=False, internal=True, cleanup_policy="compact", native_tiering=True
    )


@pytest.mark.parametrize(
    ("change", "bounded"),
    [
        ({}, None),
        ({"retention.ms": "1"}, "retention.ms=1"),
        ({"retention.bytes": "2"}, "retention.bytes=2"),
        ({"retention.ms": "1", "retention.bytes": "2"}, "retention.ms=1, retention.bytes=2"),
    ],
)
async def test_h14_a_snapshot_says_which_retention_is_bounded(
    rig: Rig, change: dict[str, str], bounded: str | None
) -> None:
    rig.broker.config |= change
    assert (await rig.snapshots.topic(rig.led)).retention_bounded == bounded


async def test_h05_offsets_are_asked_for_under_the_epoch_that_is_led(rig: Rig) -> None:
    """Elected again between two questions: the broker refuses the older epoch."""
    rig.broker.after_answer = at("topic config", lambda: rig.broker.elect(1, 1))
    with pytest.raises(Fenced, match="FENCED_LEADER_EPOCH"):
        await rig.snapshots.take(rig.led)


@pytest.mark.parametrize(("start", "is_frozen"), [(1_000, False), (999, True)])
async def test_h04_what_has_ended_freezes_nothing(
    tmp_path: Path, start: int, is_frozen: bool
) -> None:
    """As above; retention, or a client, has ended all that epoch 5 has."""
    rig = Rig(tmp_path)
    for number in range(10):
        rig.ledger.copied(metadata(number + 1, number * 100, number * 100 + 100, {5: number * 100}))
    rig.broker.elect(1, 8)
    rig.disk.epochs({8: 0})
    rig.write_log(0, 1_040, end=1_060, epoch=8)
    rig.remote_start(start)
    assert ((await rig.snapshots.take(rig.led)).frozen is not None) is is_frozen
