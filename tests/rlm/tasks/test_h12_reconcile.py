"""A whole store is compared with the ledger while a service works (H6, H12)."""

from pathlib import Path

import pytest

from kip405.segments import RemoteLogSegmentState
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.reconcile import Reconcile, Reconciled
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.clock import ManualClock
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER, MemoryLedger, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import GRACE_MS, Rig
from tests.rlm.tasks.test_h06_ledger_rebuild import survey, unlisted
from tests.rlm.tasks.test_unlisted_segments import lose_record
from tests.rlm.tasks.test_verification import segment

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
PASSED_MS = 10 * GRACE_MS
UNREFERENCED_MS = ManualClock().now_ms() + PASSED_MS
"""Objects of MemoryStore are as old as the clock."""


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) remote; the remote log starts at 0."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led, CopyRequest(up_to_offset=200))
    await made.copy.run(made.led)
    made.remote_start(0)
    return made


def reconcile(rig: Rig, ledger: MemoryLedger | None = None) -> Reconcile:
    ledger = ledger or rig.ledger
    return Reconcile(
        ledger=ledger,
        unlisted=unlisted(rig, ledger),
        clock=rig.clock,
        grace_ms=UNREFERENCED_MS,
    )


def leave_log(rig: Rig, number: int, start: int) -> str:
    """The log object of an attempt of which nobody knows; its name."""
    one = metadata(number, start, start + 1, {0: start})
    name = object_name(one.locator(CLUSTER_ID), ObjectKind.LOG)
    rig.store.objects[name] = b"remains"
    return name


async def test_nothing_becomes_of_what_is_listed(rig: Rig) -> None:
    (found,) = await reconcile(rig).plan([await survey(rig)])
    assert (found.found.added, found.found.known) == ((), 3)
    assert await reconcile(rig).write([found]) == Reconciled(adopted=0, registered=0)


async def test_h06_a_segment_whose_record_is_lost_is_adopted(rig: Rig) -> None:
    lost = lose_record(rig)
    plans = await reconcile(rig).plan([await survey(rig)])
    assert await reconcile(rig).write(plans) == Reconciled(adopted=1, registered=0)
    assert rig.ledger.view.entries[lost.segment_id.id].metadata == lost


async def test_h12_what_is_registered_is_deleted_by_cleanup_after_its_grace(rig: Rig) -> None:
    name = leave_log(rig, 77, 100)
    rig.clock.advance(PASSED_MS + 1)
    plans = await reconcile(rig).plan([await survey(rig)])
    rig.ledger.now_ms, rig.ledger.writer = rig.clock.now, OTHER_WRITER  # another process
    assert await reconcile(rig).write(plans) == Reconciled(adopted=0, registered=1)
    rig.ledger.writer = OUR_WRITER
    await rig.cleanup.run(rig.led)
    assert name in rig.store.objects
    rig.clock.advance(GRACE_MS + 1)
    await rig.cleanup.run(rig.led)
    assert name not in rig.store.objects
    assert len(rig.ledger.view.entries) == 3
    assert len(rig.names(".log")) == 3


async def test_h12_young_remains_and_a_copy_under_way_are_left(rig: Rig) -> None:
    leave_log(rig, 77, 100)
    (found,) = await reconcile(rig).plan([await survey(rig)])
    assert (found.registered, len(found.young)) == ((), 1)
    rig.clock.advance(PASSED_MS + 1)
    surveys = [await survey(rig)]
    started = metadata(77, 100, 150, {0: 100}, STARTED)
    rig.ledger.lags = True
    rig.ledger.on_barrier = lambda: rig.ledger.write(started)
    (found,) = await reconcile(rig).plan(surveys)
    assert (found.registered, found.young) == ((), ())


async def test_a_segment_with_its_manifest_is_no_leftover(rig: Rig) -> None:
    lost = lose_record(rig)
    rig.clock.advance(PASSED_MS + 1)
    await rig.store.delete_log_segment_data(segment(rig, 100).locator(CLUSTER_ID))
    found = await survey(rig)
    assert found.leftovers == []
    name = object_name(lost.locator(CLUSTER_ID), ObjectKind.MANIFEST)
    del rig.store.objects[name]
    assert [one.segment_id for one in (await survey(rig)).leftovers] == [lost.segment_id.id]
