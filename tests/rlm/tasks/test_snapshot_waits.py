"""A producer snapshot that is missing for good stops nobody's copies (copy.snapshot.wait.ms)."""

from pathlib import Path

import pytest

from kip405.contracts import IndexType
from kip405.indexes import IndexesObject
from kip405.segments import RemoteLogSegmentState
from rlm.plans.problems import ProblemKind
from tests.builders.ledger import PARTITION
from tests.builders.rig import SNAPSHOT_WAIT_MS, Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) closed; the snapshots at 100 and 200 are gone."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    for offset in (100, 200):
        made.disk.file(offset, ".snapshot").unlink()
    return made


def copied(rig: Rig) -> list[int]:
    return [entry.metadata.start_offset for entry in rig.ledger.view.in_state(FINISHED)]


async def test_a_snapshot_is_waited_for(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.clock.advance(SNAPSHOT_WAIT_MS - 1)
    await rig.copy.run(rig.led)
    status = rig.copy.statuses[PARTITION.key]
    assert copied(rig) == []
    assert status.reason == "waiting for the producer snapshot"
    assert list(status.findings()) == []


async def test_what_waited_long_enough_is_copied_without_all_segments_at_once(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.clock.advance(SNAPSHOT_WAIT_MS)
    await rig.copy.run(rig.led)
    assert copied(rig) == [0, 100, 200]
    objects = [IndexesObject.parse(rig.store.objects[name]) for name in rig.names(".indexes")]
    has = [IndexType.PRODUCER_SNAPSHOT in one.types for one in objects]
    assert has == [False, False, True]
    assert all(IndexType.ABORTED_TRANSACTIONS in one.types for one in objects)
    await rig.copy.run(rig.led)
    assert copied(rig) == [0, 100, 200]
    (finding,) = rig.copy.statuses[PARTITION.key].findings()
    assert (finding.kind, finding.subject) == (ProblemKind.SNAPSHOT_MISSING, "orders-0")
    assert "segments at 0, 100 are copied without" in finding.text


async def test_what_was_copied_without_is_trimmed(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.clock.advance(SNAPSHOT_WAIT_MS)
    rig.heartbeat()
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_one_that_comes_in_time_is_copied(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.disk.file(100, ".snapshot").write_bytes(b"producers")
    rig.disk.file(200, ".snapshot").write_bytes(b"producers")
    await rig.copy.run(rig.led)
    objects = [IndexesObject.parse(rig.store.objects[name]) for name in rig.names(".indexes")]
    assert len(objects) == 3
    assert all(IndexType.PRODUCER_SNAPSHOT in one.types for one in objects)


async def test_every_segment_waits_for_its_own_snapshot(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.clock.advance(SNAPSHOT_WAIT_MS - 1)
    rig.disk.file(300, ".snapshot").unlink()
    await rig.copy.run(rig.led)
    rig.clock.advance(1)
    await rig.copy.run(rig.led)
    assert copied(rig) == [0, 100]


async def test_a_leader_of_later_waits_again(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.copy.forget(PARTITION.key)
    rig.clock.advance(SNAPSHOT_WAIT_MS)
    await rig.copy.run(rig.led)
    assert copied(rig) == []
