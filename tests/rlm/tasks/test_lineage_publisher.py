"""H4: what a snapshot has found is published before the leader's own tier uses it."""

import asyncio
import json
from pathlib import Path

import pytest
import structlog
from structlog.typing import EventDict

from kip405.errors import Fenced, Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.remote_log.snapshot_cache import QUIET_MS
from rlm.remote_log.snapshots import PartitionSnapshot
from rlmm.settings_records import HistoryRecord, SettingsRecord
from tests.builders.ledger import PARTITION, metadata
from tests.builders.rig import Rig
from tests.rlm.plans.views import lineage


class Leader:
    """Led under epoch 6 since an unclean election at 50; epoch 5 was copied up to 100."""

    def __init__(self, path: Path) -> None:
        self.rig = rig = Rig(path)
        rig.write_log(0, 50, end=60)
        rig.disk.epochs({5: 0, 6: 50})
        rig.broker.elect(1, 6)
        rig.ledger.copied(metadata(1, 0, 100, {5: 0}))
        self.snapshots = rig.cached_snapshots()

    async def snapshot(self) -> PartitionSnapshot:
        return await self.snapshots.take(self.rig.led)

    @property
    def published(self) -> list[SettingsRecord]:
        return self.rig.settings.published

    def newest(self) -> HistoryRecord | None:
        return self.rig.settings.view.history(PARTITION.key)

    def published_freeze(self) -> str | None:
        found = self.newest()
        assert found is not None
        return found.frozen


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


async def test_h04_an_unclean_election_is_published_before_the_snapshot_counts(
    leader: Leader,
) -> None:
    known_when_published: list[PartitionSnapshot | None] = []
    leader.rig.settings.after_publish = lambda: known_when_published.append(
        leader.snapshots.of(leader.rig.led)
    )
    snapshot = await leader.snapshot()
    assert leader.published == [
        HistoryRecord(partition=PARTITION.key, frozen=None, lineage=lineage({5: 0, 6: 50}))
    ]
    assert known_when_published == [None]
    assert leader.snapshots.of(leader.rig.led) is snapshot
    for _ in range(3):
        await leader.snapshot()
    assert len(leader.published) == 1


async def test_h04_snapshots_at_the_same_time_publish_once(leader: Leader) -> None:
    """A second record would be newer than the first when that is read back: as if overruled."""
    publish = leader.rig.settings.publish

    async def slowly(record: SettingsRecord, leader_epoch: int = -1) -> None:
        await asyncio.sleep(0)
        await publish(record, leader_epoch)

    leader.rig.settings.publish = slowly  # type: ignore[method-assign]
    snapshot = await leader.snapshots.take(leader.rig.led)
    leader.rig.settings.view.apply(
        key=f"history/{PARTITION.key}".encode(), value=None, offset=leader.rig.settings.view.version
    )
    await asyncio.gather(*(leader.rig.lineage_publisher.publish(snapshot) for _ in range(3)))
    assert len(leader.published) == 2


async def test_h04_a_freeze_is_published_and_its_end(leader: Leader) -> None:
    for number in range(2, 7):
        leader.rig.ledger.copied(metadata(number, 20 * number, 20 * number + 19, {5: 20 * number}))
    assert (await leader.snapshot()).frozen is not None
    assert "outside the leader's lineage" in (leader.published_freeze() or "")
    for number in range(2, 7):
        gone = metadata(number, 20 * number, 20 * number + 19, {5: 20 * number})
        leader.rig.ledger.write(None, segment_id=gone.segment_id, previous=3, epoch=6)
    assert (await leader.snapshot()).frozen is None
    assert leader.published_freeze() is None


async def test_h04_settings_that_take_no_record_delay_snapshots_once_in_a_while(
    leader: Leader,
) -> None:
    attempts = 0
    publish = leader.rig.settings.publish

    async def fail(record: SettingsRecord, leader_epoch: int = -1) -> None:
        nonlocal attempts
        attempts += 1
        raise Unavailable("NOT_ENOUGH_REPLICAS")

    leader.rig.settings.publish = fail  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            snapshot = await leader.snapshot()
            assert leader.snapshots.of(leader.rig.led) is snapshot
    assert (attempts, _events(logs)) == (1, ["lineage_not_published"])
    leader.rig.clock.advance(QUIET_MS)
    await leader.snapshot()
    assert attempts == 2
    leader.rig.clock.advance(QUIET_MS)
    leader.rig.settings.publish = publish  # type: ignore[method-assign]
    await leader.snapshot()
    assert leader.newest() is not None


@pytest.mark.parametrize("led_elsewhere", [False, True])
async def test_h17_a_snapshot_that_was_overtaken_while_it_published_is_not_remembered(
    leader: Leader, led_elsewhere: bool
) -> None:
    """The settings take no record while a publish may last; others take snapshots meanwhile."""
    gate, started, publish = asyncio.Event(), asyncio.Event(), leader.rig.settings.publish

    async def held(record: SettingsRecord, leader_epoch: int = -1) -> None:
        started.set()
        await gate.wait()
        await publish(record, leader_epoch)

    leader.rig.settings.publish = held  # type: ignore[method-assign]
    slow = asyncio.create_task(leader.snapshot())
    await started.wait()
    newer: PartitionSnapshot | None = None
    led = leader.rig.led
    if led_elsewhere:
        leader.rig.broker.elect(2, 7)
        with pytest.raises(Fenced):
            await leader.snapshots.take(led)
    else:
        leader.rig.settings.write(
            HistoryRecord(partition=PARTITION.key, frozen=None, lineage=lineage({5: 0, 6: 50})),
            epoch=6,
        )
        newer = await leader.snapshot()
    gate.set()
    await slow
    assert leader.snapshots.snapshots.get(PARTITION.key) is newer


async def test_h04_a_later_leaders_word_stands_against_an_old_leaders(leader: Leader) -> None:
    newer = HistoryRecord(partition=PARTITION.key, frozen=None, lineage=lineage({5: 0, 7: 40}))
    leader.rig.settings.write(newer, epoch=7)
    snapshot = await leader.snapshot()
    leader.rig.settings.write(
        HistoryRecord(partition=PARTITION.key, frozen=None, lineage=snapshot.lineage), epoch=6
    )
    assert leader.newest() == newer
    assert [found.record for found in leader.rig.settings.view.reassert] == [newer]


async def test_h08_what_the_brokers_own_retention_may_cut_is_published_before(
    tmp_path: Path,
) -> None:
    """Of epoch 6 a copy may turn up when the log does not know any more that it never had it."""
    leader = Leader(tmp_path)
    leader.rig.disk.epochs({5: 0, 7: 100})
    leader.rig.broker.elect(1, 7)
    leader.rig.broker.ends_at(150)
    await leader.snapshot()
    assert not leader.published  # as every reader knows
    leader.rig.broker.config["retention.ms"] = "86400000"
    for _ in range(2):
        await leader.snapshot()
    assert leader.published == [
        HistoryRecord(partition=PARTITION.key, frozen=None, lineage=lineage({5: 0, 7: 100}))
    ]


async def test_h08_a_leader_of_the_past_publishes_nothing_of_what_may_be_cut(
    tmp_path: Path,
) -> None:
    """Another one has written to the ledger meanwhile, under a newer epoch."""
    leader = Leader(tmp_path)
    leader.rig.disk.epochs({5: 0, 7: 100})
    leader.rig.broker.elect(1, 7)
    leader.rig.broker.ends_at(150)
    leader.rig.broker.config["retention.ms"] = "86400000"
    newer = metadata(900, 140, 150, {9: 140}, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    leader.rig.ledger.write(newer, epoch=9)
    await leader.snapshot()
    assert not leader.published


async def test_h04_words_of_a_later_version_are_left_alone(leader: Leader) -> None:
    key = f"history/{PARTITION.key}"
    later = json.dumps({"v": 2, "kind": "history"}).encode()
    leader.rig.settings.view.apply(key=key.encode(), value=later, offset=9)
    with structlog.testing.capture_logs() as logs:
        await leader.snapshot()
    assert _events(logs) == ["lineage_not_published"]
    assert not leader.published


def _events(logs: list[EventDict]) -> list[str]:
    return [row["event"] for row in logs if row["event"].startswith("lineage")]
