"""H15: no trim passes a gap that is not on record: below the bound of a trim nothing is a hole."""

from pathlib import Path

import pytest

from kip405.segments import RemoteLogSegmentState
from rlm.plans.trim import NoTrim
from rlmm.ledger import Hole
from rlmm.settings_records import TrimRecord
from tests.builders.ledger import PARTITION, metadata
from tests.builders.rig import Rig

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
LOST = metadata(99, 100, 200, {0: 100})


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Epoch 0 was copied up to 100. While the next segment was copied, somebody deleted the records
    up to 200 at the broker.
    """
    made = Rig(tmp_path)
    made.write_log(200, 300, end=350, epoch=1)
    made.disk.epochs({1: 200})
    made.broker.log_start_offset = 200
    made.remote_start(0)
    made.broker.elect(1, 1)
    made.ledger.copied(metadata(98, 0, 100, {0: 0}))
    made.ledger.write(LOST.in_state(STARTED, event_timestamp_ms=0, broker_id=2), epoch=0)
    await made.copy.run(made.led)
    return made


async def look_for_holes(rig: Rig) -> tuple[Hole, ...]:
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    return tuple(rig.settings.view.holes(PARTITION.key))


async def test_h15_a_trim_waits_until_a_gap_is_on_record(rig: Rig) -> None:
    assert await look_for_holes(rig) == ()
    await rig.trim.run(rig.led)
    status = rig.trim.statuses[PARTITION.key]
    assert status.reason == NoTrim.GAP_NOT_SETTLED.value
    assert status.detail == "from 100 to 200"
    rig.ledger.write(None, segment_id=LOST.segment_id, previous=0, epoch=1)  # it has no manifest
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    (hole,) = await look_for_holes(rig)
    assert (hole.start, hole.end) == (100, 200)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h15_a_trim_goes_on_where_the_attempt_was_finished(rig: Rig) -> None:
    rig.ledger.write(LOST, epoch=1, previous=0)  # adopted from its manifest
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h06_a_gap_below_an_earlier_trim_does_not_stop_the_next_one(rig: Rig) -> None:
    """The ledger has lost the copy; nothing is published by this trim."""
    rig.settings.write(TrimRecord(partition=PARTITION.key, bound=200, planned_epoch=0))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
