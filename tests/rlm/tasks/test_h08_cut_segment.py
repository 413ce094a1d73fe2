"""H8: a client's DeleteRecords cuts the log inside a segment, and of the offsets below the cut an
older published history says something else than the segment's batches.
"""

from pathlib import Path

import pytest

from kip405.segments import EpochEntry, RemoteLogSegmentState
from rlmm.settings_records import HistoryRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.kip405.batch_builder import batch
from tests.rlm.plans.views import history, lineage

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
OWN = {1: 0, 3: 60}
DEAD = {1: 0, 2: 40}
CUT = 75


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """The segment [0, 100) has batches of epochs 1 and 3. The leader of epoch 2 had another log,
    and published its lineage; the cut is in the records of epoch 3.
    """
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150, epoch=3)
    data = b"".join(
        batch(base, 10, epoch=1 if base < OWN[3] else 3, first_ms=1_000 + base)
        for base in range(0, 100, 10)
    )
    made.broker.log = data + made.broker.log[len(data) :]
    made.disk.file(0, ".log").write_bytes(data)
    made.broker.elect(1, 3)
    made.settings.write(history(DEAD), epoch=2)
    made.disk.epochs({3: CUT})
    made.broker.log_start_offset = CUT
    made.remote_start(CUT)
    return made


async def test_h08_the_lineage_below_a_cut_is_that_of_the_batches(rig: Rig) -> None:
    snapshot = await rig.snapshots.take(rig.led)
    assert snapshot.lineage == lineage(OWN)
    assert snapshot.log.lineage == lineage({3: CUT})


async def test_h08_the_segment_that_was_cut_is_copied_and_trimmed(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    (found,) = [entry.metadata for entry in rig.ledger.view.in_state(FINISHED)]
    assert found.segment_leader_epochs == tuple(
        EpochEntry(epoch=epoch, start_offset=at) for epoch, at in OWN.items()
    )
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [100]
    rig.disk.epochs({3: 100})
    rig.disk.file(0, ".log").unlink()
    assert (await rig.snapshots.take(rig.led)).lineage == lineage(OWN)


async def test_h08_what_the_trim_loses_is_published_in_place_of_the_dead_history(
    rig: Rig,
) -> None:
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    published = rig.settings.view.history(PARTITION.key)
    assert published == HistoryRecord(
        partition=PARTITION.key, frozen=None, lineage=lineage(OWN), others=(lineage(DEAD),)
    )
