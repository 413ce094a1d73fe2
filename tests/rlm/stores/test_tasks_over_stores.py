"""Copy, trim and sweep of a partition whose segments lie in two stores: a rule was changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import Uuid
from rlm.stores.stores import CopyTarget
from rlmm.settings_records import ServiceRecord
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore

COLD = Uuid(b"\x77" * 16)


def grow(rig: Rig, *bases: int, end: int) -> None:
    """The log is written again, with more segments than before."""
    rig.broker.log = type(rig.broker.log)()
    rig.write_log(*bases, end=end)


class Away(MemoryStore):
    """A store that does not answer."""

    def __getattribute__(self, name: str) -> object:
        if name in ("read_identity", "stat", "read_manifest", "copy_log_segment_data"):
            raise Unavailable("the cold store is away")
        return super().__getattribute__(name)


@pytest.fixture
def cold() -> MemoryStore:
    return MemoryStore(CLUSTER_ID, COLD)


@pytest.fixture
async def rig(tmp_path: Path, cold: MemoryStore) -> Rig:
    """[0, 100) was copied to the first store, [100, 200) to the cold one; [200, 250) is active."""
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    await made.copy.run(made.led)
    made.shelf.stores[COLD] = cold
    made.shelf.to = CopyTarget(store_id=COLD, entropy_bits=5)
    grow(made, 0, 100, 200, end=250)
    await made.copy.run(made.led)
    return made


async def test_a_changed_rule_sends_new_segments_elsewhere_and_leaves_the_old(
    rig: Rig, cold: MemoryStore
) -> None:
    entries = sorted(rig.ledger.view.entries.values(), key=lambda one: one.metadata.start_offset)
    assert [one.metadata.custom().store_id for one in entries] == [STORE_ID, COLD]
    assert [one.metadata.custom().entropy_bits for one in entries] == [0, 5]
    assert (len(rig.store.objects), len(cold.objects)) == (3, 3)
    assert all(name.split("/")[0].strip("01") == "" for name in cold.objects)


async def test_g1_a_trim_asks_every_store_that_holds_a_covered_segment(
    rig: Rig, cold: MemoryStore
) -> None:
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[rig.led.topic_id_partition.key].trimmed_to == 200


async def test_h11_objects_missing_in_one_of_the_stores_forbid_the_trim(
    rig: Rig, cold: MemoryStore
) -> None:
    cold.objects.pop(next(name for name in cold.objects if name.endswith(".log")))
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h11_another_identity_in_one_of_the_stores_forbids_the_trim(
    rig: Rig, cold: MemoryStore
) -> None:
    cold.identity = None
    with pytest.raises(Invalid, match=f"no identity, {COLD} was expected"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h11_a_store_that_is_not_configured_any_more_forbids_the_trim(rig: Rig) -> None:
    del rig.shelf.stores[STORE_ID]
    with pytest.raises(Unavailable, match=str(STORE_ID)):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_g1_nothing_is_trimmed_that_the_next_leaders_service_could_not_read(
    rig: Rig, cold: MemoryStore
) -> None:
    """A store was added to one service's configuration; the other replica's service lags behind."""
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1, 2))
    rig.settings.now_ms = rig.clock.now
    said = ServiceRecord(node_id=2, listen={}, advertised={}, version="1", stores=(STORE_ID,))
    rig.settings.write(said, node_id=2)
    rig.settings.write(replace(said, node_id=1, stores=(STORE_ID, COLD)), node_id=1)
    with pytest.raises(Unavailable, match=f"service of node 2 does not know store {COLD}"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    rig.settings.write(replace(said, stores=(STORE_ID, COLD)), node_id=2)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [200]


async def test_copies_go_on_while_the_old_store_is_away(rig: Rig, cold: MemoryStore) -> None:
    rig.shelf.stores[STORE_ID] = Away(CLUSTER_ID)
    grow(rig, 0, 100, 200, 300, end=350)
    await rig.copy.run(rig.led)
    assert len(cold.objects) == 6


async def test_the_lag_is_seen_while_the_store_for_new_segments_is_away(rig: Rig) -> None:
    rig.shelf.stores[COLD] = Away(CLUSTER_ID, COLD)
    grow(rig, 0, 100, 200, 300, end=350)
    records = len(rig.ledger.log)
    with pytest.raises(Unavailable, match="away"):
        await rig.copy.run(rig.led)
    assert rig.copy.statuses[rig.led.topic_id_partition.key].pending_segments == 1
    assert len(rig.ledger.log) == records, "an attempt left a record"


async def test_a_sweep_does_what_it_can_while_one_store_is_away(
    rig: Rig, cold: MemoryStore
) -> None:
    """A broken attempt in each store; the older one's store is away."""
    for to, store, logs in (
        (STORE_ID, rig.store, (0, 100, 200, 300)),
        (COLD, cold, (0, 100, 200, 300)),
    ):
        rig.shelf.to = CopyTarget(store_id=to)

        def die(at: str) -> None:
            if at == "manifest":
                raise Unavailable("it died")

        store.before = die
        grow(rig, *logs, end=350)
        with pytest.raises(Unavailable, match="it died"):
            await rig.copy.run(rig.led)
        store.before = lambda _: None
    assert (len(rig.store.objects), len(cold.objects)) == (5, 5)
    rig.shelf.stores[STORE_ID] = Away(CLUSTER_ID)
    with pytest.raises(Unavailable, match="away"):
        await rig.cleanup.run(rig.led)
    status = rig.cleanup.statuses[rig.led.topic_id_partition.key]
    assert (status.leftovers, status.deleted) == (2, 1)
    assert (len(rig.store.objects), len(cold.objects)) == (5, 3)
    rig.shelf.stores[STORE_ID] = rig.store
    await rig.cleanup.run(rig.led)
    assert len(rig.store.objects) == 3


async def test_g6_a_store_that_refuses_a_delete_does_not_keep_the_others_from_being_swept(
    rig: Rig, cold: MemoryStore
) -> None:
    """Objects under a lock, say: the older attempt stays, the newer one goes."""

    def die(at: str) -> None:
        if at == "manifest":
            raise Unavailable("it died")

    def refuse(at: str) -> None:
        if at == "delete":
            raise Unavailable("the object is locked")

    for to, store in ((STORE_ID, rig.store), (COLD, cold)):
        rig.shelf.to = CopyTarget(store_id=to)
        store.before = die
        grow(rig, 0, 100, 200, 300, end=350)
        with pytest.raises(Unavailable, match="it died"):
            await rig.copy.run(rig.led)
        store.before = lambda _: None
    rig.store.before = refuse
    with pytest.raises(Unavailable, match="locked"):
        await rig.cleanup.run(rig.led)
    status = rig.cleanup.statuses[rig.led.topic_id_partition.key]
    assert (status.leftovers, status.deleted) == (2, 1)
    assert (len(rig.store.objects), len(cold.objects)) == (5, 3)
    rig.store.before = lambda _: None
    await rig.cleanup.run(rig.led)
    assert len(rig.store.objects) == 3
