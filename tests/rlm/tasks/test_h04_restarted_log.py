"""A log that was restarted below the remote start: what is in it nobody has ended (G1, H4)."""

from pathlib import Path

import pytest

from rlm.plans.trim import NoTrim
from rlmm.settings_records import DivergenceRecord, StartRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Everything up to 300 copied, the remote start at 150; then the disk was emptied, and the
    leader of epoch 2 has records 0..120 that are nowhere else. An operator has accepted that.
    """
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    made.remote_start(150)
    for file in made.disk.path.glob("0*"):
        file.unlink()
    made.broker.elect(1, 2)
    made.broker.log = made.disk.active(0, 120, epoch=2)
    made.disk.epochs({2: 0})
    made.broker.log_start_offset = 0
    made.broker.ends_at(120)
    adopted = DivergenceRecord(
        partition=PARTITION.key, action="adopt", epoch=2, offset=120, cause="operator"
    )
    made.settings.write(adopted, epoch=2)
    made.heartbeat()
    return made


def reason(rig: Rig) -> str:
    return rig.trim.statuses[PARTITION.key].reason


async def test_h04_a_start_that_is_written_again_keeps_the_epoch_it_was_decided_under(
    rig: Rig,
) -> None:
    """A zombie's lower start makes the leader write the old one again, under its own epoch."""
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.RESTARTED.value
    zombie = StartRecord(partition=PARTITION.key, remote_log_start_offset=0, cause="zombie")
    rig.settings.write(zombie, epoch=0)
    await rig.cleanup.run(rig.led)
    again = rig.settings.view.get(f"start/{PARTITION.key}")
    assert again is not None
    assert again.stamp.leader_epoch == 2
    assert rig.settings.view.remote_log_start_epoch(PARTITION.key) == 0
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.RESTARTED.value
    assert rig.broker.deleted == []


async def test_h04_a_start_that_does_not_say_its_epoch_may_be_of_any(rig: Rig) -> None:
    """An older version wrote it again under epoch 2: the stamp says nothing of the decision."""
    untold = StartRecord(
        partition=PARTITION.key, remote_log_start_offset=150, cause="delete-records"
    )
    rig.settings.write(untold, epoch=2)
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.RESTARTED.value
    assert rig.broker.deleted == []


async def test_h02_a_start_that_was_decided_for_the_new_log_ends_what_lies_below(
    rig: Rig,
) -> None:
    rig.remote_start(160)
    assert rig.settings.view.remote_log_start_epoch(PARTITION.key) == 2
    await rig.trim.run(rig.led)
    assert rig.broker.deleted != []
