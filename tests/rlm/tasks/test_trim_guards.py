"""Guards of a trim, one at a time: what was read, what is sound, what was proven when (H2, H6, H13,
H17, H27).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt, Unavailable
from kip405.segments import RemotePartitionDeleteState
from rlmm.settings_records import ServiceRecord, TrimRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import OTHER_WRITER, PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments of 100 copied, the active one from 300 to 350."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


@pytest.mark.parametrize("who", ["ledger", "settings"])
async def test_h17_nothing_is_trimmed_before_both_were_read(rig: Rig, who: str) -> None:
    getattr(rig, who).is_ready = False
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].reason == "settings or ledger are not read yet"


@pytest.mark.parametrize("who", ["ledger", "settings"])
async def test_h06_a_problem_of_either_stops_the_trim(rig: Rig, who: str) -> None:
    getattr(rig, who).problem = "records are gone"
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].detail == "records are gone"


@pytest.mark.parametrize("state", RemotePartitionDeleteState)
async def test_g1_a_recorded_deletion_of_the_partition_stops_the_trim(
    rig: Rig, state: RemotePartitionDeleteState
) -> None:
    """Its copies are there now, and another version may be about to delete them."""
    rig.ledger.delete_partition(state)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert "deletion of the whole partition" in rig.trim.statuses[PARTITION.key].detail


async def test_h02_without_a_remote_log_start_nothing_is_trimmed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, end=250)
    await rig.copied_by_another(0, 200)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert PARTITION.key not in rig.trim.statuses
    rig.remote_start(0)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [200]


def lag(rig: Rig, *isr: int) -> None:
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=isr)
    rig.heartbeat()
    rig.heartbeat(2)


async def test_h27_a_hold_starts_again_with_every_lag(rig: Rig) -> None:
    lag(rig, 1)
    await rig.trim.run(rig.led)
    rig.enable(trim=False)
    lag(rig, 1, 2)
    await rig.trim.run(rig.led)
    rig.enable(trim=True)
    rig.clock.advance(3_600_000)
    lag(rig, 1)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].reason == "waiting for replicas to catch up"


async def test_h13_bytes_are_compared_once_an_epoch(rig: Rig) -> None:
    def compared() -> int:
        return rig.broker.asked.count("fetch")

    for lowest, expected in ((100, 1), (200, 1)):
        rig.share_groups.lowest = lowest
        await rig.trim.run(rig.led)
        assert (rig.broker.deleted[-1], compared()) == (lowest, expected)
    rig.begin_epoch(1, 350)
    rig.heartbeat()
    rig.share_groups.lowest = None
    await rig.trim.run(rig.led)
    assert (rig.broker.deleted[-1], compared()) == (300, 2)


async def test_h13_bytes_that_were_not_the_same_are_compared_again(rig: Rig) -> None:
    rig.disk.segment(200, 300, fill=b"other")
    logs = (rig.disk.file(base, ".log").read_bytes() for base in (0, 100, 200, 300))
    rig.broker.log = b"".join(logs)
    for _ in range(2):
        with pytest.raises(Corrupt, match="is not the broker's"):
            await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_no_intent_is_written_while_a_peer_does_not_know_the_store(rig: Rig) -> None:
    known = ServiceRecord(node_id=1, listen={}, advertised={}, version="1", stores=(OTHER_WRITER,))
    rig.settings.write(known)
    with pytest.raises(Unavailable, match="does not know store"):
        await rig.trim.run(rig.led)
    assert rig.settings.view.trim(PARTITION.key) is None
    assert rig.broker.deleted == []


async def test_h02_the_intent_of_an_older_epoch_is_written_again(rig: Rig) -> None:
    intent = TrimRecord(partition=PARTITION.key, bound=300, planned_epoch=0)
    rig.settings.write(intent, epoch=0)
    rig.begin_epoch(1, 350)
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert rig.settings.view.trim(PARTITION.key) == replace(intent, planned_epoch=1)
    assert rig.broker.deleted == [300]


async def test_h03_a_disputed_copy_is_no_evidence_against_a_trim(rig: Rig) -> None:
    """Its bytes are others: nobody stands on it."""
    disputed = await rig.copied_by_another(200, 300)
    rig.ledger.write(disputed, previous=3, writer=OTHER_WRITER)
    assert rig.ledger.view.entries[disputed.segment_id.id].disputed
    name = object_name(disputed.locator(CLUSTER_ID), ObjectKind.LOG)
    rig.store.objects[name] = bytes(len(rig.store.objects[name]))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
