"""A remote log start that was lost, or cannot be read: nobody makes up another one (H1, H2).

The broker's log start is our own trim by then. As the start it would end the whole archive, also
with unlimited retention.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.errors import Fenced, NotFound, RemoteStorageError, Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.plans.coverage import ACCEPTED
from rlm.remote_log.log_starts import LogStarts
from rlm.topics.partition_records import Adoption
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord, StartRecord, TrimRecord
from tests.builders.audit import MemoryAudit
from tests.builders.ledger import FINISHED, PARTITION, metadata
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.rlm.tasks.test_h06_ledger_rebuild import rebuild, survey

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
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
        unlisted=rig.unlisted(),
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


def lose_start_and_ledger(rig: Rig) -> None:
    rig.settings.compact(START, keep=0)
    rig.settings.restart()
    rig.ledger.log.clear()
    rig.ledger.restart()


async def test_h06_a_lost_start_is_not_made_up_where_the_ledger_is_lost_too(rig: Rig) -> None:
    """Our own trim is on record. As the start it would end all that a rebuild brings back."""
    lose_start_and_ledger(rig)
    rig.heartbeat()
    with pytest.raises(Unavailable, match="a record of our own trim to 300 and no remote log"):
        await rig.copy.run(rig.led)
    with pytest.raises(Unavailable, match=r"lost 3 segments .*`rlm ledger rebuild` comes first"):
        await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    task = rebuild(rig, rig.ledger)
    plans = await task.plan([await survey(rig)])
    assert [one.is_start_lost for one in plans] == [True]
    assert await task.write(plans) == 3
    assert rig.settings.published == []
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0
    await rig.copy.run(rig.led)
    for run in (rig.expiry, rig.cleanup):
        await run.run(rig.led)
    assert rig.audit.deleted == []
    assert len(rig.names(".log")) == 3


async def test_h02_a_lost_start_is_the_brokers_once_every_store_shows_that_nothing_is_remote(
    rig: Rig,
) -> None:
    """All has expired; remains of an attempt hold nobody up."""
    lose_start_and_ledger(rig)
    store = rig.shelf.stores.pop(STORE_ID)
    with pytest.raises(Unavailable, match="whether a store has is not known"):
        await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    rig.shelf.stores[STORE_ID] = store
    for name in rig.names(".rsm-manifest"):
        del rig.store.objects[name]
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 300


async def test_h12_what_the_ledger_lists_after_the_stores_were_listed_counts(rig: Rig) -> None:
    lose_start_and_ledger(rig)
    rig.store.objects.clear()
    first = metadata(1, 100, 200, {0: 0})
    barriers = iter((False, True))
    rig.ledger.on_barrier = lambda: rig.ledger.write(first) if next(barriers) else None
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 100


async def test_h06_an_interrupted_copy_shows_that_there_was_a_start(rig: Rig) -> None:
    """It may have its manifest, and be the only copy."""
    lose_start_and_ledger(rig)
    rig.settings.compact(f"{TrimRecord.KIND}/{PARTITION.key}", keep=0)
    rig.settings.restart()
    rig.ledger.write(metadata(1, 0, 100, {0: 0}, state=STARTED))
    rig.heartbeat()
    with pytest.raises(Unavailable, match="1 remote segments and no remote log start"):
        await rig.copy.run(rig.led)
    await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == 0


@pytest.mark.parametrize(("state", "is_set"), [("kept", True), ("deleting", False)])
async def test_h02_a_lost_start_of_a_kept_topic_is_set_so_that_it_can_be_enabled_again(
    rig: Rig, state: str, is_set: bool
) -> None:
    another = rig.settings.view.topic(PARTITION.topic_id)
    assert another is not None
    rig.settings.write(replace(another, state=state), epoch=0)
    rig.settings.compact(START, keep=0)
    rig.settings.restart()
    if is_set:
        await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    else:
        with pytest.raises(NotFound, match="is not enabled"):
            await adoption(rig).adopt_log_start(rig.led, frozen="", by="ann")
    assert rig.settings.view.remote_log_start(PARTITION.key) == (0 if is_set else None)
