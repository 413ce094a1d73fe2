"""H6, H8: a ledger that lost copies lacks their leader epochs, and nobody may publish that."""

from pathlib import Path

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Invalid, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.history import published_lineage
from rlm.plans.trim import NoTrim
from rlmm.ledger import Hole
from rlmm.settings_records import HistoryRecord, HolesRecord, StoreRecord, TrimRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import MemoryStore
from tests.rlm.plans.views import lineage
from tests.rlm.tasks.test_accept_loss import acceptance

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
WHOLE = lineage({0: 0, 1: 100, 2: 150, 4: 200})


class AwayStore(MemoryStore):
    async def read_identity(self) -> StoreIdentity | None:
        raise Unavailable("it does not answer")


async def after_a_loss(path: Path) -> tuple[Rig, RemoteLogSegmentMetadata]:
    """The log was trimmed up to 200, on copies of epochs 0 to 2. The ledger has lost that the
    second one, with epochs 1 and 2, was finished.
    """
    rig = Rig(path)
    rig.write_log(200, 300, end=350, epoch=4)
    rig.disk.epochs({4: 200})
    rig.broker.log_start_offset = 200
    rig.remote_start(0)
    rig.settings.write(TrimRecord(partition=PARTITION.key, bound=200, planned_epoch=2), epoch=2)
    rig.broker.elect(1, 4)
    rig.ledger.copied(metadata(98, 0, 100, {0: 0}))
    forgotten = metadata(99, 100, 200, {1: 100, 2: 150})
    rig.ledger.write(forgotten.in_state(STARTED, event_timestamp_ms=0, broker_id=2), epoch=2)
    await rig.copy.run(rig.led)
    return rig, forgotten


def published(rig: Rig) -> list[HistoryRecord]:
    return [one for one in rig.settings.published if isinstance(one, HistoryRecord)]


async def test_h06_no_trim_publishes_a_lineage_with_a_gap(tmp_path: Path) -> None:
    """It would say for good that epoch 4 follows 0, and hide the copy that is found again."""
    rig, forgotten = await after_a_loss(tmp_path)
    await rig.trim.run(rig.led)
    status = rig.trim.statuses[PARTITION.key]
    assert status.reason == NoTrim.LINEAGE_UNKNOWN.value
    assert status.detail == "no copy of what lies before epoch 4 at 200"
    assert (rig.broker.deleted, published(rig)) == ([], [])
    rig.ledger.write(forgotten, epoch=4, previous=0)  # adopted from its manifest
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage for one in published(rig)] == [WHOLE]
    snapshot = await rig.snapshots.take(rig.led)
    found = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
    assert [(one.metadata.start_offset, one.next_offset) for one in found] == [
        (0, 100),
        (100, 200),
        (200, 300),
    ]


@pytest.mark.parametrize("by", ["a published lineage", "a hole on record"])
async def test_h06_what_is_known_in_another_way_is_trimmed_on(tmp_path: Path, by: str) -> None:
    """Epoch 6 begins at 300, so that there is something to publish."""
    rig, _ = await after_a_loss(tmp_path)
    rig.disk.active(300, 350, epoch=6)
    rig.begin_epoch(6, 300)
    if by == "a published lineage":
        rig.settings.write(HistoryRecord(partition=PARTITION.key, frozen=None, lineage=WHOLE))
    else:
        hole = Hole(start=100, end=200, cause="an accepted loss")
        rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)))
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage.latest_epoch for one in published(rig)] == [6]


async def test_h08_a_log_that_begins_inside_a_copy_is_trimmed(tmp_path: Path) -> None:
    """The last trim ended where a segment of ours did: inside a copy of an earlier leader, whose
    segments ended elsewhere, and behind the start of an epoch in it. Nothing is missing.
    """
    rig = Rig(tmp_path)
    rig.write_log(100, 150, 200, 300, end=350, epoch=4)
    rig.broker.elect(1, 4)
    rig.ledger.copied(metadata(98, 0, 100, {0: 0}))
    await rig.copied_by_another(100, 200, epochs={0: 100, 2: 120})
    rig.disk.file(100, ".log").unlink()
    rig.disk.epochs({2: 150, 4: 200})
    rig.broker.log_start_offset = 150
    rig.remote_start(0)
    await rig.copy.run(rig.led)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert [one.lineage for one in published(rig)] == [lineage({0: 0, 2: 120, 4: 200})]


async def after_its_copy_is_gone(path: Path) -> Rig:
    """The sweep has found nothing of the forgotten copy in the store."""
    rig, forgotten = await after_a_loss(path)
    rig.ledger.write(None, segment_id=forgotten.segment_id)
    rig.remote_start(100)
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].reason == NoTrim.LINEAGE_UNKNOWN.value
    return rig


async def test_h15_a_copy_that_ledger_and_store_have_lost_is_accepted_as_lost(
    tmp_path: Path,
) -> None:
    """Nothing else ends the wait of trims, and readers pass it then."""
    rig = await after_its_copy_is_gone(tmp_path)
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=False)
    assert (found.start, found.next_offset, found.segments) == (100, 200, 0)
    assert found.why == "neither the ledger nor any store has a segment of them"
    assert rig.settings.view.holes(PARTITION.key) == ()
    await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == (
        Hole(start=100, end=200, cause="accepted loss: op"),
    )
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h15_an_attempt_that_may_be_adopted_is_not_lost(tmp_path: Path) -> None:
    rig = await after_its_copy_is_gone(tmp_path)
    forgotten = metadata(99, 100, 200, {1: 100, 2: 150})
    rig.ledger.write(forgotten.in_state(STARTED, event_timestamp_ms=0, broker_id=2), epoch=4)
    with pytest.raises(Invalid, match="nothing is proven lost"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == ()


@pytest.mark.parametrize("what", ["a store is away", "a store is another one", "a former store"])
async def test_h15_a_store_that_was_not_listed_may_have_what_the_ledger_lost(
    tmp_path: Path, what: str
) -> None:
    rig = await after_its_copy_is_gone(tmp_path)
    store_id = Uuid(b"\x52" * 16)
    rig.settings.write(StoreRecord(store_id=store_id, plugin="s3", uri="s3://b", prefix=""))
    if what == "a store is away":
        rig.shelf.stores[store_id] = AwayStore(CLUSTER_ID, store_id)
    elif what == "a store is another one":
        rig.shelf.stores[store_id] = MemoryStore(CLUSTER_ID, Uuid(b"\x53" * 16))
    with pytest.raises(Invalid, match=rf"store {store_id} were not listed.*--without-store"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == ()
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=False, without=[store_id])
    assert (found.start, found.next_offset) == (100, 200)
    rig.shelf.stores[store_id] = MemoryStore(CLUSTER_ID, store_id)
    assert (found,) == await acceptance(rig).accept(PARTITION.key, by="op", apply=False)


async def test_h06_a_copy_that_a_store_has_is_not_lost(tmp_path: Path) -> None:
    rig = await after_its_copy_is_gone(tmp_path)
    forgotten = metadata(99, 100, 200, {1: 100, 2: 150})
    name = object_name(forgotten.locator(CLUSTER_ID), ObjectKind.LOG)
    rig.store.objects[name] = b"x"
    with pytest.raises(Invalid, match=r"a store has objects that may.*rlm reconcile"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)
    assert rig.settings.view.holes(PARTITION.key) == ()


async def test_h15_a_copy_whose_record_comes_while_stores_are_listed_is_not_lost(
    tmp_path: Path,
) -> None:
    """`rlm reconcile` has found it: the snapshot from before the listing does not count."""
    rig = await after_its_copy_is_gone(tmp_path)
    forgotten = metadata(99, 100, 200, {1: 100, 2: 150})
    asked = rig.broker.after_answer
    snapshots = 0

    def comes(question: str) -> None:
        nonlocal snapshots
        snapshots += question == "topic"
        if snapshots == 2:
            rig.broker.after_answer = asked
            rig.ledger.write(
                forgotten.in_state(STARTED, event_timestamp_ms=0, broker_id=2), epoch=4
            )

    rig.broker.after_answer = comes
    with pytest.raises(Invalid, match="nothing is proven lost"):
        await acceptance(rig).accept(PARTITION.key, by="op", apply=True)


async def test_h04_copies_of_another_history_are_named_to_the_operator(tmp_path: Path) -> None:
    rig = await after_its_copy_is_gone(tmp_path)
    rig.ledger.copied(metadata(96, 150, 160, {5: 150}))
    (found,) = await acceptance(rig).accept(PARTITION.key, by="op", apply=False)
    assert "but 1 copies of another history" in found.why


@pytest.mark.parametrize("why", ["the broker's retention", "an unclean election", "a freeze"])
async def test_h06_no_snapshot_publishes_a_lineage_with_a_gap(tmp_path: Path, why: str) -> None:
    """What is behind the gap must be published at once, for readers or because the broker may
    remove it from its epoch file.
    """
    rig, forgotten = await after_a_loss(tmp_path)
    known = {4: 200}
    if why == "the broker's retention":
        rig.broker.config["retention.ms"] = "1000"
    else:
        known[6] = 300
        rig.disk.active(300, 350, epoch=6)
        rig.begin_epoch(6, 300)
        for number in range(1 if why == "an unclean election" else 4):
            rig.ledger.copied(metadata(80 + number, 300 + number, 310 + number, {5: 300 + number}))
    snapshots = rig.cached_snapshots()
    for _ in range(3):
        assert ((await snapshots.take(rig.led)).frozen is not None) is (why == "a freeze")
    assert [one.lineage for one in published(rig)] == [lineage(known)]
    rig.ledger.write(forgotten, epoch=6, previous=0)  # adopted from its manifest
    snapshot = await snapshots.take(rig.led)
    assert snapshot.lineage == lineage({0: 0, 1: 100, 2: 150} | known)
    assert published_lineage(snapshot.ledger, published(rig)[-1]) == snapshot.lineage
