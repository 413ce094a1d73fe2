"""A remote log start that was lost, or cannot be read: nobody makes up another one (H1, H2).

The broker's log start is our own trim by then. As the start it would end the whole archive, also
with unlimited retention.
"""

from pathlib import Path
from typing import Any, cast

import pytest

from kip405.errors import Fenced, RemoteStorageError, Unavailable
from rlm.plans.coverage import ACCEPTED
from rlm.remote_log.log_starts import LogStarts
from rlm.topics.partition_records import Adoption
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord, StartRecord
from tests.builders.audit import MemoryAudit
from tests.builders.ledger import FINISHED, PARTITION
from tests.builders.rig import Rig

START = f"{StartRecord.KIND}/{PARTITION.key}"


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Everything up to 300 is copied and trimmed; nothing has ever ended."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    made.heartbeat()
    await made.trim.run(made.led)
    assert made.broker.log_start_offset == 300
    assert made.settings.view.remote_log_start(PARTITION.key) == 0
    made.settings.published.clear()
    return made


async def holds() -> None:
    """The reason for a raise holds."""


def another_process(rig: Rig) -> None:
    """It begins after compaction."""
    rig.settings.compact(START)
    rig.settings.restart()
    assert rig.settings.view.remote_log_start(PARTITION.key) is None


async def check_kept(rig: Rig) -> None:
    """No pass of any task writes a start, or deletes anything."""
    for _ in range(3):
        rig.heartbeat()
        with pytest.raises(Unavailable, match="no remote log start"):
            await rig.copy.run(rig.led)
        for task in (rig.expiry, rig.cleanup):
            await task.run(rig.led)
        await rig.unreferenced.run_on(await rig.snapshots.take(rig.led))
        rig.clock.advance(1_000_000_000)
    assert not [one for one in rig.settings.published if isinstance(one, StartRecord)]
    assert rig.settings.view.remote_log_start(PARTITION.key) is None
    assert rig.audit.deleted == []
    assert len(rig.names(".log")) == 3


async def test_h02_a_start_of_a_later_version_is_not_replaced_by_our_own_trim(rig: Rig) -> None:
    rig.settings.spoil(START)
    another_process(rig)
    await check_kept(rig)
    assert rig.settings.problem is not None
    assert "v=2 is not known" in rig.settings.problem


@pytest.mark.parametrize("value", [b"{", b'{"v":1,"kind":"start"}', b"[]"])
async def test_h02_a_damaged_start_is_not_replaced_by_our_own_trim(rig: Rig, value: bytes) -> None:
    rig.settings.spoil(START, value)
    another_process(rig)
    await check_kept(rig)


async def test_h02_a_start_that_the_settings_have_lost_is_not_made_up(rig: Rig) -> None:
    rig.settings.compact(START, keep=0)
    rig.settings.restart()
    assert rig.settings.problem is None
    await check_kept(rig)


async def test_h02_no_first_start_is_written_while_the_ledger_may_have_lost_segments(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)
    rig.ledger.damage = "it ends below what was read"
    with pytest.raises(Unavailable, match="it ends below what was read"):
        await rig.copy.run(rig.led)
    rig.ledger.damage = None
    await rig.copy.run(rig.led)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0
    assert len(rig.names(".log")) == 1


async def test_h02_a_process_that_knows_the_start_does_not_write_over_what_it_cannot_read(
    rig: Rig,
) -> None:
    """What that version has decided is not known here, and stays on record."""
    rig.settings.spoil(START)
    with pytest.raises(Fenced, match="cannot be read"):
        await rig.starts.raise_to(PARTITION, 200, leader_epoch=0, cause="tests", check=holds)
    with pytest.raises(Fenced, match="cannot be read"):
        await rig.settings.tombstone(START, 0)
    await rig.expiry.run(rig.led)
    assert rig.settings.problem is not None
    assert rig.audit.deleted == []


async def test_h15_holes_that_cannot_be_read_are_not_replaced(rig: Rig) -> None:
    key = f"{HolesRecord.KIND}/{PARTITION.key}"
    rig.settings.spoil(key)
    rig.settings.compact(key)
    rig.settings.restart()
    with pytest.raises(Fenced, match="cannot be read"):
        await rig.hole_records.add(
            PARTITION.key, [Hole(start=0, end=10, cause=f"{ACCEPTED}: ann")], 0
        )
    assert rig.settings.published == []
    assert rig.settings.problem is not None


async def test_h02_what_a_later_version_wrote_is_well_again_when_one_can_read_it(rig: Rig) -> None:
    rig.settings.spoil(START)
    another_process(rig)
    rig.remote_start(100)
    assert rig.settings.problem is None
    await rig.copy.run(rig.led)
    await rig.expiry.run(rig.led)
    assert [one.start_offset for one in rig.audit.deleted] == [0]


def adoption(rig: Rig) -> Adoption:
    """What `rlm topics adopt-log-start` calls."""
    starts = LogStarts(settings=rig.settings, audit=MemoryAudit(), barrier_deadline_ms=1_000)
    return Adoption(
        broker=rig.broker,
        settings=cast(Any, rig.settings),
        ledger=rig.ledger,
        starts=starts,
        barrier_deadline_ms=1_000,
    )


async def test_h02_an_operator_sets_a_lost_start_where_the_remote_segments_begin(rig: Rig) -> None:
    """A record that cannot be read is removed first, with Kafka's own tools."""
    rig.settings.spoil(START)
    another_process(rig)
    with pytest.raises(Unavailable, match="v=2 is not known"):
        await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    rig.settings.remove(START)
    with pytest.raises(RemoteStorageError, match="is frozen"):
        await adoption(rig).adopt_log_start(rig.led, frozen="orphans", by="ann")
    assert rig.settings.published == []
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0
    rig.heartbeat()
    await rig.copy.run(rig.led)
    for task in (rig.expiry, rig.cleanup):
        await task.run(rig.led)
    assert rig.audit.deleted == []
    assert len(rig.names(".log")) == 3


async def test_h02_a_start_that_an_operator_sets_is_not_above_what_the_broker_has(
    rig: Rig,
) -> None:
    rig.settings.compact(START, keep=0)
    rig.settings.restart()
    (first, *_) = rig.ledger.view.in_state(FINISHED)
    rig.ledger.write(None, segment_id=first.metadata.segment_id, previous=int(FINISHED))
    rig.broker.log_start_offset = 50
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 50
