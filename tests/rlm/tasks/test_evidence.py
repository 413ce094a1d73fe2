"""What a sweep and a trim make of what stores show: wrong stores, manifests of others, broken ones,
attempts that end while a run goes on (H6, H11, H12, H13).
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt, Fenced, Invalid, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.tasks.expiration import ExpirationTask
from rlmm.ledger_values import decode_value
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.layout.manifest import Manifest
from tests.builders.discards import discard_task
from tests.builders.ledger import OTHER_WRITER, PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.manifests import manifest_of
from tests.builders.rig import Rig

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture
async def unfinished(tmp_path: Path) -> Rig:
    """[0, 100) has its objects and its manifest; only FINISHED was never written."""
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)

    def lose(published: RemoteLogSegmentMetadata) -> None:
        if published.state is FINISHED:
            raise Unavailable("nothing was sent")

    rig.ledger.before_publish = lose
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.ledger.before_publish = lambda _: None
    return rig


@pytest.fixture
async def broken(tmp_path: Path) -> Rig:
    """[0, 100) has objects without a manifest, and STARTED."""
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)
    rig.store.delays_manifests = True
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.store.delays_manifests = False
    return rig


def attempt(rig: Rig) -> RemoteLogSegmentMetadata:
    (entry,) = rig.ledger.view.entries.values()
    return entry.metadata


def manifest_name(metadata: RemoteLogSegmentMetadata) -> str:
    return object_name(metadata.locator(CLUSTER_ID), ObjectKind.MANIFEST)


def finished(rig: Rig) -> RemoteLogSegmentMetadata:
    """What the attempt's own manifest would publish."""
    data = rig.store.objects[manifest_name(attempt(rig))]
    return decode_value(Manifest.parse(data).segment_metadata)


def another_store(rig: Rig) -> None:
    assert rig.store.identity is not None
    rig.store.identity = replace(rig.store.identity, store_id=OTHER_WRITER)


def another_cluster(rig: Rig) -> None:
    assert rig.store.identity is not None
    rig.store.identity = replace(rig.store.identity, cluster_id="another-cluster")


def no_store(rig: Rig) -> None:
    rig.store.identity = None


WRONG_STORES = pytest.mark.parametrize(
    ("swap", "why"),
    [
        (another_store, "the plugin serves store"),
        (another_cluster, "belongs to cluster another-cluster"),
        (no_store, "the store has no identity"),
    ],
)


@WRONG_STORES
async def test_h11_nothing_is_adopted_from_another_store(
    unfinished: Rig, swap: Callable[[Rig], None], why: str
) -> None:
    swap(unfinished)
    with pytest.raises(Invalid, match=why):
        await unfinished.cleanup.run(unfinished.led)
    assert attempt(unfinished).state is STARTED


@WRONG_STORES
async def test_h11_nothing_is_trimmed_on_another_store(
    tmp_path: Path, swap: Callable[[Rig], None], why: str
) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, end=250)
    await rig.copy.run(rig.led)
    swap(rig)
    with pytest.raises(Invalid, match=why):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert why in (rig.trim.statuses[PARTITION.key].alarm or "")


@WRONG_STORES
async def test_h11_no_run_of_copies_is_begun_at_another_store(
    tmp_path: Path, swap: Callable[[Rig], None], why: str
) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)
    swap(rig)
    with pytest.raises(Invalid, match=why):
        await rig.copy.run(rig.led)
    assert not rig.ledger.log


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_id": "another-cluster"},
        {"store_id": OTHER_WRITER},
        {"segment_metadata": b"\x00\x00nonsense"},
    ],
    ids=["cluster", "store", "metadata"],
)
async def test_h12_a_manifest_of_somebody_else_decides_nothing(
    unfinished: Rig, change: dict[str, object]
) -> None:
    found = attempt(unfinished)
    right = finished(unfinished)
    unfinished.store.objects[manifest_name(found)] = manifest_of(right, **change)
    await unfinished.cleanup.run(unfinished.led)
    (alarm,) = unfinished.cleanup.statuses[PARTITION.key].alarms
    assert "the manifest cannot be used" in alarm
    assert attempt(unfinished).state is STARTED
    assert len(unfinished.store.objects) == 3


@pytest.mark.parametrize("change", [{"start_offset": 10}, {"end_offset": 90}, {"partition": 3}])
async def test_h12_a_manifest_of_other_records_decides_nothing(
    unfinished: Rig, change: dict[str, int]
) -> None:
    """What it would publish is of another segment than the entry."""
    found = attempt(unfinished)
    other = finished(unfinished)
    if "partition" in change:
        partition = replace(other.topic_id_partition, partition=3)
        other = replace(other, segment_id=replace(other.segment_id, topic_id_partition=partition))
    else:
        other = replace(other, **change)  # type: ignore[arg-type]
    unfinished.store.objects[manifest_name(found)] = manifest_of(other)
    await unfinished.cleanup.run(unfinished.led)
    (alarm,) = unfinished.cleanup.statuses[PARTITION.key].alarms
    assert "describes another segment" in alarm
    assert attempt(unfinished).state is STARTED
    assert len(unfinished.store.objects) == 3


async def test_h06_a_manifest_that_the_store_calls_corrupt_is_an_alarm(unfinished: Rig) -> None:
    name = manifest_name(attempt(unfinished))
    unfinished.store.errors[name] = Corrupt(f"{name}: wrong checksum")
    await unfinished.cleanup.run(unfinished.led)
    (alarm,) = unfinished.cleanup.statuses[PARTITION.key].alarms
    assert "wrong checksum" in alarm
    assert len(unfinished.store.objects) == 3
    del unfinished.store.errors[name]
    await unfinished.cleanup.run(unfinished.led)
    assert attempt(unfinished).state is FINISHED


async def test_h06_a_manifest_that_turns_up_unreadable_at_the_last_moment_saves_the_copy(
    broken: Rig,
) -> None:
    name = manifest_name(attempt(broken))

    def appear(published: RemoteLogSegmentMetadata) -> None:
        broken.store.errors[name] = Corrupt(f"{name}: torn")

    broken.ledger.after_publish = appear
    with pytest.raises(Exception, match="has a manifest now"):
        await broken.cleanup.run(broken.led)
    assert len(broken.store.objects) == 2


async def test_h06_an_attempt_live_before_the_snapshot_is_not_decided_by_it(broken: Rig) -> None:
    snapshot = await broken.snapshots.take(broken.led)
    await broken.cleanup.run_on(snapshot, frozenset({attempt(broken).segment_id.id}))
    assert attempt(broken).state is STARTED
    assert broken.store.objects


async def test_h06_an_attempt_that_began_after_the_snapshot_is_not_decided_by_it(
    broken: Rig,
) -> None:
    snapshot = await broken.snapshots.take(broken.led)
    with broken.live.working_on(attempt(broken).segment_id.id):
        await broken.cleanup.run_on(snapshot, frozenset())
    assert attempt(broken).state is STARTED
    await broken.cleanup.run_on(snapshot, frozenset())
    assert not broken.store.objects


async def test_h06_an_attempt_that_ends_during_the_snapshot_is_left_to_the_next_task(
    broken: Rig,
) -> None:
    """Its last words may not be in the ledger that the snapshot has."""
    ending = ExitStack()
    ending.enter_context(broken.live.working_on(attempt(broken).segment_id.id))

    def end(question: str) -> None:
        if question == "log end":
            ending.close()

    broken.broker.after_answer = end
    expiration = ExpirationTask(
        snapshots=broken.snapshots,
        holes=broken.hole_watch,
        trim=broken.trim,
        expiry=broken.expiry,
        unreferenced=broken.unreferenced,
        discard=discard_task(broken),
        cleanup=broken.cleanup,
        clock=broken.clock,
        good_runs=broken.good_runs,
        saw=lambda _snapshot, _began_at_ms: None,
    )
    broken.enable(trim=False)
    await expiration.run(broken.led)
    assert attempt(broken).state is STARTED
    await expiration.run(broken.led)
    assert not broken.store.objects


async def test_h13_a_batch_too_large_to_be_compared_whole_forbids_the_trim(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for base in (0, 100):
        rig.broker.log += rig.disk.segment(base, base + 100, fill=b"x" * 30_000)
    rig.broker.log += rig.disk.active(200, 250)
    rig.broker.ends_at(250)
    rig.log_dir.recovery_point(PARTITION.topic, PARTITION.partition, 250)
    await rig.copy.run(rig.led)
    with pytest.raises(Corrupt, match="answered part of the batch at 100"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


@pytest.mark.parametrize(("log_start", "appended"), [(150, 1), (260, 8)])
async def test_h13_the_very_batch_is_compared_however_sparse_the_index_is(
    tmp_path: Path, log_start: int, appended: int
) -> None:
    """Another leader's copy has an index entry at every third batch; the log begins in between. As
    a follower before 4.0 it has appended several batches at once, with one entry.
    """
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    await rig.copied_by_another(0, 300, appended=appended)
    rig.remote_start(log_start)
    rig.broker.log_start_offset = log_start
    rig.disk.epochs({0: log_start})
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h11_a_store_that_is_away_is_asked_once_a_run(broken: Rig) -> None:
    found = attempt(broken)
    twin = replace(found, segment_id=replace(found.segment_id, id=Uuid(b"\x7d" * 16)))
    broken.ledger.write(twin)
    asked = 0

    async def away() -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("the store is away")

    broken.store.read_identity = away  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="the store is away"):
        await broken.cleanup.run(broken.led)
    assert asked == 1


async def test_h05_who_lost_the_leadership_during_a_run_adopts_nothing(unfinished: Rig) -> None:
    led = unfinished.led

    def depose(question: str) -> None:
        if question == "log end":
            unfinished.broker.elect(2, 1)

    unfinished.broker.after_answer = depose
    with pytest.raises(Fenced, match="led by 2 under epoch 1"):
        await unfinished.cleanup.run(led)
    assert attempt(unfinished).state is STARTED
