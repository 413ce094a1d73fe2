"""H6, H8: a ledger that lost copies lacks their leader epochs, and nobody may publish that."""

from pathlib import Path

import pytest

from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.history import published_lineage
from rlm.plans.trim import NoTrim
from rlmm.ledger import Hole
from rlmm.settings_records import HistoryRecord, HolesRecord, TrimRecord
from tests.builders.ledger import PARTITION, metadata
from tests.builders.rig import Rig
from tests.rlm.plans.views import lineage

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
WHOLE = lineage({0: 0, 1: 100, 2: 150, 4: 200})


async def after_a_loss(path: Path) -> tuple[Rig, RemoteLogSegmentMetadata]:
    """The log was trimmed up to 200, on copies of epochs 0 to 2. The ledger has lost that the
    second one, with epochs 1 and 2, was finished.
    """
    rig = Rig(path)
    rig.write_log(200, 300, end=350, epoch=4)
    rig.disk.epochs({4: 200})
    rig.broker.log_start_offset = 200
    rig.remote_start(0)
    rig.settings.write(TrimRecord(partition=PARTITION.key, bound=200, planned_epoch=2), epoch=2)
    rig.broker.elect(1, 4)
    rig.ledger.copied(metadata(98, 0, 100, {0: 0}))
    forgotten = metadata(99, 100, 200, {1: 100, 2: 150})
    rig.ledger.write(forgotten.in_state(STARTED, event_timestamp_ms=0, broker_id=2), epoch=2)
    await rig.copy.run(rig.led)
    return rig, forgotten


def published(rig: Rig) -> list[HistoryRecord]:
    return [one for one in rig.settings.published if isinstance(one, HistoryRecord)]


async def test_h06_no_trim_publishes_a_lineage_with_a_gap(tmp_path: Path) -> None:
    """It would say for good that epoch 4 follows 0, and hide the copy that is found again."""
    rig, forgotten = await after_a_loss(tmp_path)
    await rig.trim.run(rig.led)
    status = rig.trim.statuses[PARTITION.key]
    assert status.reason == NoTrim.LINEAGE_UNKNOWN.value
    assert status.detail == "no copy of what lies before epoch 4 at 200"
    assert (rig.broker.deleted, published(rig)) == ([], [])
    rig.ledger.write(forgotten, epoch=4, previous=0)  # adopted from its manifest
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage for one in published(rig)] == [WHOLE]
    snapshot = await rig.snapshots.take(rig.led)
    found = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
    assert [(one.metadata.start_offset, one.next_offset) for one in found] == [
        (0, 100),
        (100, 200),
        (200, 300),
    ]


@pytest.mark.parametrize("by", ["a published lineage", "a hole on record"])
async def test_h06_what_is_known_in_another_way_is_trimmed_on(tmp_path: Path, by: str) -> None:
    """Epoch 6 begins at 300, so that there is something to publish."""
    rig, _ = await after_a_loss(tmp_path)
    rig.disk.active(300, 350, epoch=6)
    rig.begin_epoch(6, 300)
    if by == "a published lineage":
        rig.settings.write(HistoryRecord(partition=PARTITION.key, frozen=None, lineage=WHOLE))
    else:
        hole = Hole(start=100, end=200, cause="an accepted loss")
        rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage.latest_epoch for one in published(rig)] == [6]


async def test_h08_a_log_that_begins_inside_a_copy_is_trimmed(tmp_path: Path) -> None:
    """The last trim ended where a segment of ours did: inside a copy of an earlier leader, whose
    segments ended elsewhere, and behind the start of an epoch in it. Nothing is missing.
    """
    rig = Rig(tmp_path)
    rig.write_log(100, 150, 200, 300, end=350, epoch=4)
    rig.broker.elect(1, 4)
    rig.ledger.copied(metadata(98, 0, 100, {0: 0}))
    await rig.copied_by_another(100, 200, epochs={0: 100, 2: 120})
    rig.disk.file(100, ".log").unlink()
    rig.disk.epochs({2: 150, 4: 200})
    rig.broker.log_start_offset = 150
    rig.remote_start(0)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage for one in published(rig)] == [lineage({0: 0, 2: 120, 4: 200})]


@pytest.mark.parametrize("why", ["the broker's retention", "an unclean election", "a freeze"])
async def test_h06_no_snapshot_publishes_a_lineage_with_a_gap(tmp_path: Path, why: str) -> None:
    """What is behind the gap must be published at once, for readers or because the broker may
    remove it from its epoch file.
    """
    rig, forgotten = await after_a_loss(tmp_path)
    known = {4: 200}
    if why == "the broker's retention":
        rig.broker.config["retention.ms"] = "1000"
    else:
        known[6] = 300
        rig.disk.active(300, 350, epoch=6)
        rig.begin_epoch(6, 300)
        for number in range(1 if why == "an unclean election" else 4):
            rig.ledger.copied(metadata(80 + number, 300 + number, 310 + number, {5: 300 + number}))
    snapshots = rig.cached_snapshots()
    for _ in range(3):
        assert ((await snapshots.take(rig.led)).frozen is not None) is (why == "a freeze")
    assert [one.lineage for one in published(rig)] == [lineage(known)]
    rig.ledger.write(forgotten, epoch=6, previous=0)  # adopted from its manifest
    snapshot = await snapshots.take(rig.led)
    assert snapshot.lineage == lineage({0: 0, 1: 100, 2: 150} | known)
    assert published_lineage(snapshot.ledger, published(rig)[-1]) == snapshot.lineage
