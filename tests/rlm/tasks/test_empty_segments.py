"""Closed segments of 0 bytes, as the log cleaner leaves them, under copy, trim and readers."""

from pathlib import Path

import pytest

from kip405.errors import NotFound
from kip405.indexes import AbortedTransaction, TransactionIndexEntry, encode_transaction_index
from kip405.segments import RemoteLogSegmentState
from rlm.plans.coverage import ACCEPTED, NO_RECORDS
from rlmm.ledger import Hole, SegmentEntry
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import object_names
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """[0, 100) and [200, 300) hold records, [100, 200) and [300, 400) are of 0 bytes."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, 400, end=450)
    for base in (100, 300):
        made.disk.empty(base, base + 100)
    made.log_dir.cleaned_up_to(PARTITION.topic, PARTITION.partition, 400)
    return made


def copied(rig: Rig) -> list[tuple[int, int]]:
    found = [entry.metadata for entry in rig.ledger.view.in_state(FINISHED)]
    return [(one.start_offset, one.next_offset) for one in found]


async def test_empty_segments_are_passed_and_trimmed(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    assert copied(rig) == [(0, 100), (200, 300)]
    assert rig.copy.statuses[PARTITION.key].lag_segments == 0
    assert rig.copy.statuses[PARTITION.key].doubtful == ()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [400]


async def test_a_trim_goes_by_the_disk_and_not_by_what_is_on_record(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=()), epoch=0)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [400]


async def test_h02_what_ended_below_the_remote_start_is_not_put_on_record(rig: Rig) -> None:
    rig.remote_start(200)
    await rig.copy.run(rig.led)
    assert rig.settings.view.holes(PARTITION.key) == (Hole(start=300, end=400, cause=NO_RECORDS),)


async def test_h15_they_are_on_record_as_holes_in_which_nobody_misses_anything(rig: Rig) -> None:
    await rig.copy.run(rig.led)
    holes = (
        Hole(start=100, end=200, cause=NO_RECORDS),
        Hole(start=300, end=400, cause=NO_RECORDS),
    )
    assert rig.settings.view.holes(PARTITION.key) == holes
    written = len(rig.settings.published)
    await rig.copy.run(rig.led)
    assert len(rig.settings.published) == written


async def test_h15_holes_that_others_recorded_stay_on_record(rig: Rig) -> None:
    lost = Hole(start=120, end=130, cause="accepted")
    rig.remote_start(0)
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(lost,)), epoch=0)
    await rig.copy.run(rig.led)
    assert lost in rig.settings.view.holes(PARTITION.key)
    assert len(rig.settings.view.holes(PARTITION.key)) == 3


async def test_g1_beyond_a_file_that_may_have_lost_its_bytes_nothing_is_trimmed(rig: Rig) -> None:
    """The broker does not notice a file that a crash has emptied: others may have the records."""
    rig.log_dir.cleaned_up_to(PARTITION.topic, PARTITION.partition, 200)
    await rig.copy.run(rig.led)
    assert copied(rig) == [(0, 100), (200, 300)]
    (finding,) = rig.copy.statuses[PARTITION.key].findings()
    assert finding.subject == "orders-0"
    assert "00000000000000000300.log has 0 bytes" in finding.text
    assert "offsets 300 to 399" in finding.text
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert rig.settings.view.holes(PARTITION.key) == (Hole(start=100, end=200, cause=NO_RECORDS),)


async def a_part_is_found_again(path: Path) -> Rig:
    """[100, 200) is of 0 bytes here. Of an earlier leader's copies [100, 150) is there again; the
    rest of what was accepted as lost is lost.
    """
    rig = Rig(path)
    rig.write_log(0, 100, 150, 200, 300, end=350)
    await rig.copy.run(rig.led)
    for found in rig.disk.path.glob(f"{150:020d}.*"):
        found.unlink()
    rig.disk.empty(100, 200)
    (gone,) = [one for one in rig.ledger.view.in_state(FINISHED) if copied_from(one) == 150]
    rig.ledger.write(None, segment_id=gone.metadata.segment_id, previous=int(FINISHED))
    lost = Hole(start=150, end=200, cause=f"{ACCEPTED}: op")
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(lost,)), epoch=0)
    return rig


def copied_from(entry: SegmentEntry) -> int:
    return entry.metadata.start_offset


async def test_h15_an_accepted_loss_of_which_a_part_is_found_again_holds_no_trim(
    tmp_path: Path,
) -> None:
    rig = await a_part_is_found_again(tmp_path)
    await rig.copy.run(rig.led)
    assert rig.copy.statuses[PARTITION.key].doubtful == ()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    (hole,) = rig.settings.view.holes(PARTITION.key)
    assert (hole.start, hole.end) == (150, 200), "the copy has records"


async def test_h11_a_copy_that_is_gone_again_settles_nothing(tmp_path: Path) -> None:
    rig = await a_part_is_found_again(tmp_path)
    (part,) = [one for one in rig.ledger.view.in_state(FINISHED) if copied_from(one) == 100]
    for name in object_names(part.metadata.locator(CLUSTER_ID)).values():
        del rig.store.objects[name]
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    rig.lost.suspect(PARTITION.key, [part.metadata.segment_id.id])
    await rig.copy.run(rig.led)
    assert [one.base_offset for one in rig.copy.statuses[PARTITION.key].doubtful] == [100]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
async def test_g1_an_index_with_entries_says_that_there_were_records(rig: Rig, suffix: str) -> None:
    entry = TransactionIndexEntry(AbortedTransaction(7, 300, 309), 320)
    data = encode_transaction_index([entry]) if suffix == ".txnindex" else bytes(12)
    rig.disk.file(300, suffix).write_bytes(data)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_a_log_of_empty_segments_alone_is_trimmed_without_a_copy(rig: Rig) -> None:
    rig.disk.empty(0, 100)
    rig.disk.empty(200, 300)
    await rig.copy.run(rig.led)
    assert copied(rig) == []
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [400]


async def test_an_empty_segment_needs_no_producer_snapshot(rig: Rig) -> None:
    rig.disk.file(200, ".snapshot").unlink()
    await rig.copy.run(rig.led)
    assert copied(rig) == [(0, 100), (200, 300)]


async def test_g2_an_empty_segment_above_the_last_stable_offset_is_waited_for(rig: Rig) -> None:
    rig.broker.last_stable_offset = 150
    await rig.copy.run(rig.led)
    assert copied(rig) == [(0, 100)]
    assert rig.copy.statuses[PARTITION.key].reason == "waiting for the last stable offset"
