"""Copies in another layout than `kafka`: what is recorded and proved, adopted, swept and read."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.crc import crc32c
from kip405.errors import Invalid, NotFound, Unavailable
from kip405.segments import Layout, LogSegmentData, RemoteLogSegmentState, SegmentLocator
from rlm.plans.verification import IssueKind
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.reconcile import Reconciled
from rlmm.ledger_values import encode_value
from rlmm.replay import LedgerState
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.layout.pinterest import mark_of
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER, PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import GRACE_MS, Rig
from tests.builders.store import MemoryStore
from tests.rlm.tasks.test_h06_ledger_rebuild import survey
from tests.rlm.tasks.test_h12_reconcile import PASSED_MS, reconcile
from tests.rlm.tasks.test_unlisted_segments import lose_record
from tests.rlm.tasks.test_verification import segment, verified

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def grow(rig: Rig, *bases: int, end: int) -> None:
    """The log is written again, with more segments than before."""
    rig.broker.log = type(rig.broker.log)()
    rig.write_log(*bases, end=end)


def change_layout(rig: Rig, layout: Layout) -> None:
    rig.shelf.to = replace(rig.shelf.to, layout=layout)


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100) was copied as `kafka`, then [100, 200) and [200, 300) as `blocks`."""
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    await made.copy.run(made.led)
    change_layout(made, Layout.BLOCKS)
    grow(made, 0, 100, 200, 300, end=350)
    await made.copy.run(made.led, CopyRequest(up_to_offset=200))
    await made.copy.run(made.led)
    made.remote_start(0)
    return made


def locator(rig: Rig, start: int) -> SegmentLocator:
    return segment(rig, start).locator(CLUSTER_ID)


def suffixes(rig: Rig) -> list[str]:
    return sorted(name.rpartition(".")[2] for name in rig.store.objects)


async def test_a_changed_layout_is_that_of_new_segments_only(rig: Rig) -> None:
    layouts = [segment(rig, start).custom().layout for start in (0, 100, 200)]
    assert layouts == [Layout.KAFKA, Layout.BLOCKS, Layout.BLOCKS]
    blocks = ["blocks"] * 2 + ["blocks-index"] * 2
    assert suffixes(rig) == sorted([*blocks, "indexes", "log", *["rsm-manifest"] * 3])


async def test_a_manifest_names_the_objects_that_are_in_the_store(rig: Rig) -> None:
    for start, layout in ((0, "kafka"), (100, "blocks")):
        names = object_names(locator(rig, start))
        manifest = Manifest.parse(rig.store.objects[names.pop(ObjectKind.MANIFEST)])
        assert manifest.layout == layout
        stored = {name: rig.store.objects[name] for name in names.values()}
        found = {one.name: (one.size_bytes, one.crc32c) for one in manifest.objects}
        assert found == {name: (len(data), crc32c(data)) for name, data in stored.items()}
    data = rig.store.objects[object_name(locator(rig, 100), ObjectKind.BLOCKS)]
    assert segment(rig, 100).segment_size_bytes < len(data)


async def test_g1_a_partition_of_two_layouts_is_trimmed_and_verified_to_the_last_byte(
    rig: Rig,
) -> None:
    await rig.trim.run(rig.led)
    assert rig.broker.log_start_offset == 300
    issues, report = await verified(rig, deep=True)
    assert (issues, report.unchecked, report.segments) == ([], (), 3)


@pytest.mark.parametrize("kind", [ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX])
async def test_g09_what_a_deep_run_finds_is_named_by_the_object_of_the_layout(
    rig: Rig, kind: ObjectKind
) -> None:
    name = object_name(locator(rig, 200), kind)
    before = rig.store.objects[name]
    rig.store.objects[name] = before[:-3] + bytes([before[-3] ^ 1]) + before[-2:]
    issues, _ = await verified(rig, deep=True)
    assert {(one.kind, one.object_name) for one in issues} == {(IssueKind.DAMAGED, name)}


@pytest.mark.parametrize("kind", [ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX])
@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: None])
async def test_h11_an_object_that_is_not_as_it_was_stored_forbids_the_trim(
    rig: Rig, kind: ObjectKind, spoil: Callable[[bytes], bytes | None]
) -> None:
    name = object_name(locator(rig, 200), kind)
    changed = spoil(rig.store.objects.pop(name))
    if changed is not None:
        rig.store.objects[name] = changed
    with pytest.raises(NotFound):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


class Silent(MemoryStore):
    """A plugin that does not say what it stored."""

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        await super().copy_log_segment_data(locator, data)
        return b""


async def test_g3_a_copy_whose_objects_are_not_known_gets_no_manifest(rig: Rig) -> None:
    silent = Silent(CLUSTER_ID)
    rig.shelf.stores = dict.fromkeys(rig.shelf.stores, silent)
    grow(rig, 0, 100, 200, 300, 400, end=450)
    with pytest.raises(Invalid, match="did not say what it stored"):
        await rig.copy.run(rig.led)
    assert sorted(name.rpartition(".")[2] for name in silent.objects) == ["blocks", "blocks-index"]
    await rig.cleanup.run(rig.led)
    assert not silent.objects


@pytest.mark.parametrize("operation", ["copy", "copied", "manifest"])
async def test_h06_a_broken_attempt_leaves_neither_entry_nor_object(
    rig: Rig, operation: str
) -> None:
    before = dict(rig.store.objects)

    def die(at: str) -> None:
        if at == operation:
            raise Unavailable(f"the store died at {at}")

    grow(rig, 0, 100, 200, 300, 400, end=450)
    rig.store.before = die
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    rig.store.before = lambda _: None
    await rig.cleanup.run(rig.led)
    assert rig.store.objects == before
    assert len(rig.ledger.view.entries) == 3


async def test_h06_a_copy_whose_finished_was_lost_is_adopted_with_its_layout(rig: Rig) -> None:
    done = segment(rig, 200)
    started = next(
        one.metadata
        for one in rig.ledger.log
        if one.metadata is not None and one.metadata.segment_id == done.segment_id
    )
    assert started.state is STARTED and started.custom().layout is Layout.BLOCKS
    rig.ledger.log.clear()
    rig.ledger.state = LedgerState()
    rig.ledger.write(started, writer=OTHER_WRITER)
    await rig.cleanup.run(rig.led)
    assert rig.cleanup.statuses[PARTITION.key].adopted == 1
    (entry,) = rig.ledger.view.entries.values()
    assert (entry.state, entry.metadata.custom()) == (FINISHED, done.custom())


async def test_h06_a_segment_that_the_ledger_lost_is_adopted_from_its_manifest(rig: Rig) -> None:
    lost = lose_record(rig)
    assert lost.custom().layout is Layout.BLOCKS
    plans = await reconcile(rig).plan([await survey(rig)])
    assert await reconcile(rig).write(plans) == Reconciled(adopted=1, registered=0)
    assert rig.ledger.view.entries[lost.segment_id.id].metadata == lost


async def test_h11_no_ledger_gets_a_segment_whose_log_others_may_delete(rig: Rig) -> None:
    lost = lose_record(rig)
    custom = replace(lost.custom(), layout=Layout.KAFKA, plugin=mark_of("theirs"))
    name = object_names(lost.locator(CLUSTER_ID))[ObjectKind.MANIFEST]
    fields = json.loads(rig.store.objects[name])
    theirs = b64encode(encode_value(replace(lost, custom_metadata=custom.encode()))).decode()
    changed = {**fields, "layout": "pinterest", "segment_metadata": theirs}
    rig.store.objects[name] = json.dumps(changed).encode()
    (found,) = await reconcile(rig).plan([await survey(rig)])
    (left,) = found.found.broken
    assert (found.found.added, found.registered) == ((), ())
    assert "it is imported" in left.broken


def leave_blocks(rig: Rig, size_bytes: int) -> list[str]:
    """The objects of an attempt of which nobody knows; their names."""
    one = metadata(77, 100, 101, {0: 100})
    unknown = replace(
        one, custom_metadata=replace(one.custom(), layout=Layout.BLOCKS, plugin=b"").encode()
    )
    names = object_names(unknown.locator(CLUSTER_ID))
    rig.store.objects[names[ObjectKind.BLOCKS]] = bytes(size_bytes)
    rig.store.objects[names[ObjectKind.BLOCKS_INDEX]] = b"index"
    return [names[ObjectKind.BLOCKS], names[ObjectKind.BLOCKS_INDEX]]


async def test_h12_remains_are_registered_with_their_layout_and_deleted(rig: Rig) -> None:
    names = leave_blocks(rig, 7)
    rig.clock.advance(PASSED_MS + 1)
    plans = await reconcile(rig).plan([await survey(rig)])
    rig.ledger.now_ms, rig.ledger.writer = rig.clock.now, OTHER_WRITER  # another process
    assert await reconcile(rig).write(plans) == Reconciled(adopted=0, registered=1)
    rig.ledger.writer = OUR_WRITER
    rig.clock.advance(GRACE_MS + 1)
    await rig.cleanup.run(rig.led)
    assert not rig.store.objects.keys() & names
    assert len(rig.ledger.view.entries) == 3


async def test_h06_remains_with_more_records_than_the_segments_after_them_are_left(
    rig: Rig,
) -> None:
    held = sum(segment(rig, start).segment_size_bytes for start in (100, 200))
    leave_blocks(rig, held + 1)
    rig.clock.advance(PASSED_MS + 1)
    (found,) = await reconcile(rig).plan([await survey(rig)])
    assert (len(found.registered), len(found.unreplaced)) == (0, 1)


@pytest.mark.parametrize(
    ("start", "layout", "match"),
    [
        (200, "kafka", "of layout kafka, its segment of blocks"),
        (200, "x", "of layout x"),
        (200, "pinterest", "of layout pinterest, its segment of blocks"),
        (0, "pinterest", "of layout pinterest, its segment of kafka"),
    ],
)
async def test_h06_a_manifest_of_another_layout_than_its_segment_is_not_used(
    rig: Rig, start: int, layout: str, match: str
) -> None:
    one = segment(rig, start)
    name = object_names(one.locator(CLUSTER_ID))[ObjectKind.MANIFEST]
    fields = json.loads(rig.store.objects[name])
    rig.store.objects[name] = json.dumps({**fields, "layout": layout}).encode()
    evidence = StoreEvidence(rig.shelf, cluster_id=CLUSTER_ID, threads=rig.threads.evidence)
    assert match in (await evidence.manifest(one)).unreadable
    found = await survey(rig)
    (unusable,) = found.unusable
    assert match in unusable
    assert found.leftovers == []
