"""The remote log start moves up only, on a view that is up to date (H1, H2)."""

from pathlib import Path

import pytest

from kip405.errors import Invalid
from kip405.ids import PartitionKey
from rlm.remote_log.log_starts import raise_start
from rlmm.settings_records import CAUSE_RETENTION, StartRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def raised(rig: Rig, offset: int, key: PartitionKey = PARTITION.key) -> int:
    return await raise_start(
        rig.settings,
        key,
        offset,
        leader_epoch=rig.broker.partition.leader_epoch,
        cause=CAUSE_RETENTION,
        barrier_deadline_ms=1_000,
    )


async def test_h02_a_start_moves_up_and_says_why(rig: Rig) -> None:
    rig.remote_start(120)
    assert await raised(rig, 150) == 150
    adopted = rig.settings.view.get(f"start/{PARTITION.key}")
    assert adopted is not None and isinstance(adopted.record, StartRecord)
    assert (adopted.record.remote_log_start_offset, adopted.record.cause) == (150, "retention")
    assert adopted.record.decided_epoch == rig.broker.partition.leader_epoch


async def test_h02_a_start_never_goes_back(rig: Rig) -> None:
    rig.remote_start(120)
    written = rig.settings.view.next_offset
    assert await raised(rig, 50) == 120
    assert rig.settings.view.next_offset == written


async def test_h02_a_start_is_moved_on_a_view_that_is_up_to_date(rig: Rig) -> None:
    rig.remote_start(120)
    rig.settings.lags = True
    rig.remote_start(300)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 120
    assert await raised(rig, 200) == 300


async def test_h02_without_a_start_there_is_none_to_move(rig: Rig) -> None:
    rig.remote_start(120)
    with pytest.raises(Invalid, match="no remote log start"):
        await raised(rig, 50, PartitionKey(PARTITION.topic_id, 9))
