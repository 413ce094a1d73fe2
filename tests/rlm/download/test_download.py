"""A download is what the broker had, survives every break, and touches nobody's files."""

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.checkpoints import (
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kip405.errors import Corrupt, Invalid, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction
from kip405.segments import EpochEntry, SegmentLocator
from rlm.download.folder import PartitionFolder
from rlm.download.sources import StoreSource
from rsm_plugins.layout.keys import ObjectKind
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID, TOPIC, TOPIC_ID
from tests.builders.rig import Rig
from tests.builders.store import MemoryStore
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch
from tests.rlm.download.stored import Work, copied, grow, put

PER_SEGMENT = (".log", ".index", ".timeindex")


async def test_the_files_of_closed_segments_come_back_byte_for_byte(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, 250, end=300)
    work = Work(rig, tmp_path / "out")
    (plan,) = await work.run()
    assert [(one.start_offset, one.next_offset) for one in plan.pieces] == [(0, 100), (100, 250)]
    found = work.files()
    for base in (0, 100):
        for suffix in PER_SEGMENT:
            original = rig.disk.file(base, suffix)
            assert found.pop(original.name) == original.read_bytes()
    for end in (100, 250):
        original = rig.disk.file(end, ".snapshot")
        assert found.pop(original.name) == original.read_bytes()
    assert parse_partition_metadata(found.pop("partition.metadata")) == TOPIC_ID
    epochs = parse_leader_epochs(found.pop("leader-epoch-checkpoint"))
    assert epochs.entries == (EpochEntry(epoch=0, start_offset=0),)
    assert found == {}
    assert work.reports[-1].done_segments == 2
    assert work.reports[-1].done_bytes == plan.size_bytes


async def test_an_aborted_transactions_index_comes_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    aborted = [(AbortedTransaction(7, 3, 40), 50)]
    rig.broker.log += rig.disk.segment(0, 100, aborted=aborted)
    rig.broker.log += rig.disk.active(100, 150)
    rig.broker.ends_at(150)
    rig.log_dir.recovery_point(TOPIC, 0, 150)
    await rig.copy.run(rig.led)
    work = Work(rig, tmp_path / "out")
    await work.run()
    original = rig.disk.file(0, ".txnindex")
    assert work.files()[original.name] == original.read_bytes()


async def test_readers_begin_at_the_remote_log_start(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    rig.remote_start(30)
    await grow(rig, 100, 200, end=250)
    await Work(rig, tmp_path / "out").run()
    starts = parse_offset_checkpoint(
        (tmp_path / "out" / "log-start-offset-checkpoint").read_bytes()
    )
    assert starts == {(TOPIC, 0): 30}


async def test_a_second_call_fetches_nothing(tmp_path: Path) -> None:
    work = Work(await copied(tmp_path, 0, 100, 250, end=300), tmp_path / "out")
    await work.run()
    before, work.source.reads = work.files(), 0
    await work.run()
    assert work.source.reads == 0
    assert work.files() == before
    assert work.reports[-1].had_bytes == work.reports[-1].done_bytes > 0


async def test_a_new_segment_is_added(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    work = Work(rig, tmp_path / "out")
    await work.run()
    await grow(rig, 100, 200, end=250)
    work.source.reads = 0
    (plan,) = await work.run()
    assert plan.next_offset == 200
    assert work.source.reads == 1


async def large(tmp_path: Path) -> Rig:
    """One closed segment of some 10 MB: two ranges."""
    rig = Rig(tmp_path)
    rig.broker.log += rig.disk.segment(0, 100, fill=b"x" * 100_000)
    rig.broker.log += rig.disk.active(100, 150)
    rig.broker.ends_at(150)
    rig.log_dir.recovery_point(TOPIC, 0, 150)
    await rig.copy.run(rig.led)
    return rig


async def test_a_broken_segment_goes_on_at_its_last_good_chunk(tmp_path: Path) -> None:
    work = Work(await large(tmp_path), tmp_path / "out")
    work.source.breaks_after = 1
    with pytest.raises(Unavailable, match="away"):
        await work.run()
    (part,) = work.folder.glob("*.part")
    assert part.stat().st_size == 8 << 20
    part.write_bytes(part.read_bytes()[: 7 << 20] + b"torn")  # the last chunk is not whole
    work.source.breaks_after, work.source.reads = None, 0
    (plan,) = await work.run()
    assert work.source.reads == 1
    assert work.reports[-1].had_bytes == 7 << 20
    (piece,) = plan.pieces
    assert len(work.files()[piece.file(".log")]) == piece.size_bytes


async def test_cancelled_anywhere_it_goes_on(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, 200, 300, end=350)
    wanted = Work(rig, tmp_path / "wanted")
    await wanted.run()
    work = Work(rig, tmp_path / "out")
    cancelled = 0
    for steps in range(0, 60, 3):
        task = asyncio.ensure_future(work.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        # On a busy machine threads may be through with all of it by now.
        cancelled += task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert cancelled
    await work.run()
    assert work.files() == wanted.files()


@pytest.mark.parametrize("name", ["00000000000000000042.log", "notes.txt"])
async def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    work = Work(rig, tmp_path / "out")
    work.folder.mkdir(parents=True)
    (work.folder / name).write_text("precious")
    with pytest.raises(Invalid, match="not empty"):
        await work.run()
    assert work.files() == {name: b"precious"}


async def test_a_foreign_file_that_came_later_is_left_alone(tmp_path: Path) -> None:
    work = Work(await copied(tmp_path, 0, 100, end=150), tmp_path / "out")
    await work.run()
    (work.folder / "00000000000000000777.log").write_text("a broker wrote this")
    with pytest.raises(Invalid, match=r"777\.log"):
        await work.run()


async def test_a_download_of_another_topic_is_left_alone(tmp_path: Path) -> None:
    work = Work(await copied(tmp_path, 0, 100, end=150), tmp_path / "out")
    await work.run()
    notes = work.root / f"{TOPIC}-0.rlm-download"
    header, *rows = notes.read_text().splitlines()
    changed = {**json.loads(header), "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    notes.write_text("\n".join([json.dumps(changed), *rows, ""]))
    with pytest.raises(Invalid, match="another download"):
        await work.run()


async def test_a_torn_last_note_is_forgotten(tmp_path: Path) -> None:
    work = Work(await copied(tmp_path, 0, 100, 200, end=250), tmp_path / "out")
    await work.run()
    notes, before = work.root / f"{TOPIC}-0.rlm-download", work.files()
    notes.write_text(notes.read_text()[:-20])
    work.source.reads = 0
    await work.run()
    assert work.source.reads == 1
    assert work.files() == before


async def test_a_segment_that_is_gone_from_the_store_goes_here_too(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, 200, end=250)
    work = Work(rig, tmp_path / "out")
    await work.run()
    for name in [name for name in rig.store.objects if f"/{0:020d}-" in name]:
        del rig.store.objects[name]
    await work.run()
    assert sorted(path.name for path in work.folder.glob("*.log")) == [f"{100:020d}.log"]


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES])
async def test_flipped_bits_are_an_error_that_names_the_segment(
    tmp_path: Path, kind: ObjectKind
) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    (name,) = rig.names(f".{kind.value}")
    data = bytearray(rig.store.objects[name])
    data[len(data) // 2] ^= 1
    rig.store.objects[name] = bytes(data)
    work = Work(rig, tmp_path / "out")
    with pytest.raises(Corrupt, match=str(PARTITION)):
        await work.run()
    assert not list(work.folder.glob("*.log"))


async def test_an_object_that_is_gone_is_not_found(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    del rig.store.objects[rig.names(".log")[0]]
    with pytest.raises(NotFound):
        await Work(rig, tmp_path / "out").run()


async def test_an_unknown_topic_is_not_found(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, end=150)
    with pytest.raises(NotFound, match="payments"):
        await StoreSource(rig.store, threads=THREADS).plans("payments", None)


async def test_a_name_that_was_used_twice_needs_a_topic_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    older = replace(PARTITION, topic_id=Uuid(b"\x66" * 16))
    put(rig, 1, batch(0, 10), {0: 0})
    put(rig, 2, batch(0, 20), {0: 0}, older)
    with pytest.raises(Invalid, match=str(older.topic_id)):
        await StoreSource(rig.store, threads=THREADS).plans(TOPIC, None)
    (plan,) = await StoreSource(rig.store, threads=THREADS, topic_id=older.topic_id).plans(
        TOPIC, None
    )
    assert (plan.topic_partition, plan.next_offset) == (older, 20)


async def test_partitions_are_separate_and_one_can_be_chosen(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(3):
        put(rig, number + 1, batch(0, 10), {0: 0}, replace(PARTITION, partition=number))
    plans = await StoreSource(rig.store, threads=THREADS).plans(TOPIC, None)
    assert [plan.topic_partition.partition for plan in plans] == [0, 1, 2]
    (plan,) = await StoreSource(rig.store, threads=THREADS).plans(TOPIC, 1)
    assert plan.topic_partition.partition == 1


async def test_a_segment_deleted_between_listing_and_reading_is_left_out(tmp_path: Path) -> None:
    rig = await copied(tmp_path, 0, 100, 200, end=250)

    class Vanishing(MemoryStore):
        async def read_manifest(self, locator: SegmentLocator) -> bytes:
            if locator.start_offset == 0:
                raise NotFound("it was deleted just now")
            return await super().read_manifest(locator)

    store = Vanishing(CLUSTER_ID)
    store.objects = rig.store.objects
    (plan,) = await StoreSource(store, threads=THREADS).plans(TOPIC, None)
    assert [piece.start_offset for piece in plan.pieces] == [100]


async def test_a_log_that_a_broker_appended_to_is_left_alone(tmp_path: Path) -> None:
    work = Work(await copied(tmp_path, 0, 100, 200, end=250), tmp_path / "out")
    await work.run()
    last = work.folder / f"{100:020d}.log"
    last.write_bytes(last.read_bytes() + batch(200, 10))
    grown = work.files()
    with pytest.raises(Invalid, match=r"100\.log"):
        await work.run()
    assert work.files() == grown


async def test_a_segment_that_comes_back_is_not_taken_for_what_replaced_it(tmp_path: Path) -> None:
    """Same offsets, same size, other records: an older note says nothing of the files there."""
    one, other = batch(0, 10, value=b"one"), batch(0, 10, value=b"two")
    assert len(one) == len(other)
    rig = Rig(tmp_path)
    work = Work(rig, tmp_path / "out")
    for number, log in ((1, one), (2, other), (1, one)):
        rig.store.objects.clear()
        put(rig, number, log, {0: 0})
        await work.run()
        assert work.files()[f"{0:020d}.log"] == log


def found_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("topic", ["../outside", "a/b", "/outside"])
async def test_a_name_that_leads_out_of_the_directory_is_refused(
    tmp_path: Path, topic: str
) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, batch(0, 10), {0: 0})
    work = Work(rig, tmp_path / "out")
    (plan,) = await work.source.plans(TOPIC, None)
    plan = replace(plan, topic_partition=replace(plan.topic_partition, topic=topic))
    before = found_below(tmp_path)
    with pytest.raises(Invalid, match="topic"), PartitionFolder.opened(work.root, plan):
        raise AssertionError("opened")
    assert found_below(tmp_path) == before
