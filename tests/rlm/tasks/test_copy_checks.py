"""Checks that attempts share: fewer requests, and none that keeps attempts at other stores."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Fenced
from kip405.ids import Uuid
from rlm.tasks.copy_checks import CopyChecks
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore

OTHER_STORE = Uuid(bytes([7] * 16))


class HangingStore(MemoryStore):
    """Says who it is once `opened` is set."""

    def __init__(self) -> None:
        super().__init__(CLUSTER_ID)
        self.opened, self.asked = asyncio.Event(), 0

    async def read_identity(self) -> StoreIdentity | None:
        self.asked += 1
        await self.opened.wait()
        return await super().read_identity()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    return made


def checks(rig: Rig) -> CopyChecks:
    return CopyChecks(
        snapshots=rig.snapshots,
        ledger=rig.ledger,
        stores=rig.shelf,
        cluster_id=CLUSTER_ID,
        barrier_deadline_ms=1_000,
    )


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_attempts_that_ask_at_the_same_time_share_the_requests(rig: Rig) -> None:
    store, ours = HangingStore(), checks(rig)
    rig.shelf.stores[STORE_ID] = store
    before = len(rig.ledger.barriers), rig.broker.asked.count("topic")
    first = asyncio.ensure_future(ours.after_upload(rig.led, STORE_ID))
    await turns()
    later = [asyncio.ensure_future(ours.after_upload(rig.led, STORE_ID)) for _ in range(9)]
    await turns()
    assert store.asked == 1
    store.opened.set()
    await asyncio.gather(first, *later)
    assert store.asked == 2, "one for the first, one that was sent after the others had asked"
    assert len(rig.ledger.barriers) - before[0] == 2
    assert rig.broker.asked.count("topic") - before[1] == 2


async def test_the_error_of_one_partition_is_that_of_no_other(rig: Rig) -> None:
    stale, ours = replace(rig.led, leader_epoch=rig.led.leader_epoch + 1), checks(rig)
    wrong, right = await asyncio.gather(
        ours.after_upload(stale, STORE_ID),
        ours.after_upload(rig.led, STORE_ID),
        return_exceptions=True,
    )
    assert isinstance(wrong, Fenced)
    assert right is None


async def test_attempts_at_a_store_that_hangs_keep_no_others_waiting(rig: Rig) -> None:
    ours, other = checks(rig), HangingStore()
    rig.shelf.stores[OTHER_STORE] = other
    hanging = asyncio.ensure_future(ours.after_upload(rig.led, OTHER_STORE))
    await turns()
    await asyncio.wait_for(ours.after_upload(rig.led, STORE_ID), 60)
    assert not hanging.done()
    hanging.cancel()
