"""A ledger is written again from a store: proof, order, and what may come between (H6, H12)."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Fenced, Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.ledger_rebuild import (
    LedgerRebuild,
    UnlistedEvidence,
    check_all_stores,
    proven_cluster,
)
from rlm.tasks.store_survey import StoreSurvey, StoreSurveyor
from rlmm.settings_records import ClusterRecord, StoreRecord
from tests.builders.ledger import PARTITION, MemoryLedger
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.manifests import manifest_of
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.rlm.tasks.test_verification import segment

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
OTHER_ID = Uuid(b"\x77" * 16)


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) remote; the remote log starts at 0."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led, CopyRequest(up_to_offset=200))
    await made.copy.run(made.led)
    made.remote_start(0)
    return made


async def survey(rig: Rig) -> StoreSurvey:
    surveyor = StoreSurveyor(cluster_id=CLUSTER_ID, topic_name=lambda _: PARTITION.topic)
    return await surveyor.survey(rig.store, STORE_ID)


def rebuild(rig: Rig, ledger: MemoryLedger | None) -> LedgerRebuild:
    return LedgerRebuild(ledger=ledger, unlisted=unlisted(rig, ledger))


def unlisted(rig: Rig, ledger: MemoryLedger | None) -> UnlistedEvidence:
    return UnlistedEvidence(
        ledger=ledger,
        settings=rig.settings,
        evidence=StoreEvidence(rig.shelf, cluster_id=CLUSTER_ID, threads=rig.threads.evidence),
        barrier_deadline_ms=1_000,
    )


async def test_h06_an_empty_ledger_gets_all_records_back(rig: Rig) -> None:
    before, ledger = dict(rig.ledger.view.entries), MemoryLedger()
    found = [await survey(rig)]
    (shown,) = await rebuild(rig, None).plan(found)
    assert [one.start_offset for one in shown.added] == [0, 100, 200]
    plans = await rebuild(rig, ledger).plan(found)
    assert await rebuild(rig, ledger).write(plans) == 3
    assert ledger.states() == [FINISHED] * 3
    assert {one: row.metadata for one, row in ledger.view.entries.items()} == {
        one: row.metadata for one, row in before.items()
    }
    assert not any(row.disputed for row in ledger.view.entries.values())
    (again,) = await rebuild(rig, ledger).plan(found)
    assert (again.added, again.known) == ((), 3)


async def test_h12_a_segment_deleted_after_the_listing_does_not_come_back(rig: Rig) -> None:
    found = [await survey(rig)]
    await rig.store.delete_log_segment_data(segment(rig, 100).locator(CLUSTER_ID))
    (plan,) = await rebuild(rig, MemoryLedger()).plan(found)
    assert [one.start_offset for one in plan.added] == [0, 200]
    assert len(plan.broken) == 1
    (listed_later,) = await rebuild(rig, MemoryLedger()).plan([await survey(rig)])
    assert listed_later.broken == ()


async def test_h12_a_record_that_comes_before_the_barrier_is_known(rig: Rig) -> None:
    found, ledger = [await survey(rig)], MemoryLedger()
    ledger.lags = True
    listed = segment(rig, 100)
    ledger.on_barrier = partial(ledger.copied, listed)
    (plan,) = await rebuild(rig, ledger).plan(found)
    assert [one.start_offset for one in plan.added] == [0, 200]


async def test_a_start_raised_meanwhile_counts(rig: Rig) -> None:
    found = [await survey(rig)]
    rig.settings.lags = True
    rig.remote_start(100)
    (plan,) = await rebuild(rig, None).plan(found)
    assert (plan.remote_log_start_offset, plan.ended) == (100, 1)


async def test_a_record_that_comes_after_the_plan_fences_ours(rig: Rig) -> None:
    ledger = MemoryLedger()
    plans = await rebuild(rig, ledger).plan([await survey(rig)])
    ledger.copied(segment(rig, 100).in_state(FINISHED, event_timestamp_ms=9, broker_id=2))
    with pytest.raises(Fenced):
        await rebuild(rig, ledger).write(plans)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": "another"},
        {"store_id": OTHER_ID},
        {"start_offset": 101},
        {"segment_id": OTHER_ID},
    ],
)
async def test_h12_a_manifest_that_proves_something_else_is_named_and_not_used(
    rig: Rig, changes: dict[str, Any]
) -> None:
    one = segment(rig, 100)
    await rig.store.write_manifest(one.locator(CLUSTER_ID), manifest_of(one, **changes))
    found = await survey(rig)
    assert len(found.unusable) == 1
    assert [len(segments) for segments in found.segments.values()] == [2]


async def test_h12_metadata_of_another_name_is_not_used(rig: Rig) -> None:
    """The manifest agrees with itself, but lies under the name of another segment."""
    one = segment(rig, 100)
    other = replace(one, segment_id=replace(one.segment_id, id=OTHER_ID))
    await rig.store.write_manifest(one.locator(CLUSTER_ID), manifest_of(other))
    assert len((await survey(rig)).unusable) == 1
    elsewhere = TopicIdPartition(topic_id=OTHER_ID, topic=PARTITION.topic, partition=0)
    foreign = replace(
        one, segment_id=RemoteLogSegmentId(topic_id_partition=elsewhere, id=one.segment_id.id)
    )
    await rig.store.write_manifest(one.locator(CLUSTER_ID), manifest_of(foreign))
    assert len((await survey(rig)).unusable) == 1


async def test_a_manifest_of_an_unfinished_segment_is_not_used(rig: Rig) -> None:
    one = segment(rig, 100)
    deleting = one.in_state(
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED, event_timestamp_ms=0, broker_id=1
    )
    await rig.store.write_manifest(one.locator(CLUSTER_ID), manifest_of(deleting))
    (text,) = (await survey(rig)).unusable
    assert "DELETE_SEGMENT_STARTED" in text


async def test_objects_that_are_none_of_ours_are_named(rig: Rig) -> None:
    rig.store.objects["something/else"] = b"x"
    assert len((await survey(rig)).unusable) == 1


@pytest.mark.parametrize("is_late", [False, True])
async def test_h11_another_store_is_not_surveyed(rig: Rig, is_late: bool) -> None:
    other = StoreIdentity(store_id=OTHER_ID, cluster_id=CLUSTER_ID, created_ms=0)
    read, manifests = rig.store.read_manifest, []

    async def swapped(locator: Any) -> bytes:
        rig.store.identity = other
        manifests.append(locator)
        return await read(locator)

    rig.store.read_manifest = swapped  # type: ignore[method-assign]
    rig.store.identity = rig.store.identity if is_late else other
    with pytest.raises(Invalid, match="serves store"):
        await survey(rig)
    assert bool(manifests) == is_late


def cluster(**changes: Any) -> ClusterRecord:
    record = ClusterRecord(
        cluster_id=CLUSTER_ID,
        ledger_topic_id=Uuid(b"\x01" * 16),
        settings_topic_id=Uuid(b"\x02" * 16),
        default_store_id=STORE_ID,
    )
    return replace(record, **changes)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "no cluster record"),
        (cluster(cluster_id="another"), "belong to cluster another"),
        (cluster(settings_topic_id=OTHER_ID), "was created again"),
    ],
)
def test_h06_settings_that_do_not_prove_the_cluster_end_it(
    tmp_path: Path, record: ClusterRecord | None, words: str
) -> None:
    rig = Rig(tmp_path)
    if record is not None:
        rig.settings.write(record)
    with pytest.raises(Invalid, match=words):
        proven_cluster(
            rig.settings.view, cluster_id=CLUSTER_ID, settings_topic_id=Uuid(b"\x02" * 16)
        )
    rig.settings.write(cluster())
    found = proven_cluster(
        rig.settings.view, cluster_id=CLUSTER_ID, settings_topic_id=Uuid(b"\x02" * 16)
    )
    assert found == cluster()


def test_h06_settings_that_cannot_be_read_end_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.settings.write(cluster())
    rig.settings.view.apply(key=b"topic/x", value=b"{", offset=99)
    with pytest.raises(Invalid, match="cannot be relied upon"):
        proven_cluster(
            rig.settings.view, cluster_id=CLUSTER_ID, settings_topic_id=Uuid(b"\x02" * 16)
        )


def test_h06_a_store_that_was_not_surveyed_must_be_left_out_by_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for store_id in (STORE_ID, OTHER_ID):
        rig.settings.write(
            StoreRecord(store_id=store_id, plugin="local", uri="file:///x", prefix="")
        )
    with pytest.raises(Invalid, match=str(OTHER_ID)):
        check_all_stores(rig.settings.view, {STORE_ID: None}, [])
    check_all_stores(rig.settings.view, {STORE_ID: None}, [OTHER_ID])
    check_all_stores(rig.settings.view, {STORE_ID: None, OTHER_ID: None}, [])
