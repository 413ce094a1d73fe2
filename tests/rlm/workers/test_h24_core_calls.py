"""H24: calls of a worker to the core over a real unix socket, and what holds without the core."""

import asyncio
import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import ErrorKind, Invalid, RemoteStorageError, Unavailable, error_of_kind
from kip405.ids import Uuid
from rlm.proxy.begun import begin
from rlm.reading.values import RemoteRead, TimestampedOffset
from rlm.remote_log.tier import ChangedMeanwhile, TopicRef
from rlm.workers.core import WorkerTerms
from rlm.workers.frames import FrameLink
from rlm.workers.v1 import core_pb2 as pb
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.fakes import TOPIC_ID, WATERMARKS, FakeTier, blob, tier_partition
from tests.rlm.workers.core_site import HELLO, NAMED, RATE, RawWorker, core_at, site
from tests.waiting import until

READ = RemoteRead(
    topic_id=TOPIC_ID,
    partition=0,
    offset=10,
    upper_offset=90,
    max_bytes=200,
    at_least_one=True,
    read_committed=True,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def queued_bytes(link: FrameLink | None) -> int:
    """What waits for the other side."""
    assert link is not None and link._writer is not None
    return link._writer.untaken_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "core.sock"


async def test_h24_each_call_has_the_cores_answer(path: Path) -> None:
    async with site(path) as s:
        s.core.tier.aborted = ((5, 6),)
        s.core.tier.timestamped = TimestampedOffset(offset=3, timestamp_ms=4, leader_epoch=5)
        assert await s.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert await s.worker.barrier(TopicRef(topic_id=TOPIC_ID), 0, 60_000) == tier_partition()
        assert await s.worker.barrier(TopicRef(name="other"), 0, 60_000) is None
        assert await s.worker.watermarks(NAMED, 0, 60_000) == WATERMARKS
        records = await s.worker.read(READ)
        assert b"".join(records.records) == blob(10, 30)
        assert (records.size_bytes, records.next_offset, records.aborted) == (200, 30, ((5, 6),))
        assert s.core.tier.reads == [READ]
        found = await s.worker.offset_for_timestamp(TOPIC_ID, 0, 77)
        assert found == s.core.tier.timestamped
        s.core.tier.timestamped = None
        assert await s.worker.offset_for_timestamp(TOPIC_ID, 0, 77) is None
        assert await s.worker.raise_start(tier_partition(), 44) == 44
        assert s.core.deletions.raised == [(9, 44)]
        assert [hello.client_bytes_per_second for hello in s.hellos] == [RATE]


async def test_changed_terms_reach_the_workers_that_are_connected(path: Path) -> None:
    async with site(path) as s:
        await s.worker.barrier(NAMED, 0, 60_000)
        s.core.terms = WorkerTerms(client_bytes_per_second=77, log_level="debug")
        s.core.server.terms_changed()
        await s.worker.barrier(NAMED, 0, 60_000)
        terms = [(one.client_bytes_per_second, one.log_level) for one in s.hellos]
        assert terms == [(RATE, "info"), (77, "debug")]
        assert s.worker.is_connected


async def test_h38_the_core_knows_which_workers_are_there(path: Path) -> None:
    async with site(path) as s:
        found = {one.name: one for one in s.core.processes.observed()}
        assert {name for name, one in found.items() if one.recent_ends} == {"worker 4"}
        assert found["worker 4"].recent_ends == 2
        s.core.processes.greeted(77, 0)  # of a supervisor with more workers
        s.core.processes.heard(77)
        assert len(s.core.processes.observed()) == len(found) == 7


@pytest.mark.parametrize("kind", ErrorKind)
async def test_h24_each_call_has_the_cores_error(path: Path, kind: ErrorKind) -> None:
    async with site(path) as s:
        error = error_of_kind(kind, "why")
        s.core.tier.error = s.core.tier.barrier_error = s.core.tier.watermarks_error = error
        s.core.deletions.error = error
        for call in (
            s.worker.barrier(NAMED, 0, 60_000),
            s.worker.watermarks(NAMED, 0, 60_000),
            s.worker.read(READ),
            s.worker.offset_for_timestamp(TOPIC_ID, 0, 77),
            s.worker.raise_start(tier_partition(), 44),
        ):
            with pytest.raises(type(error), match="why"):
                await call
        s.core.tier.error = ChangedMeanwhile("deleted")
        with pytest.raises(ChangedMeanwhile):
            await s.worker.read(READ)
        assert s.memory.held_bytes == 0


async def test_h24_a_socket_below_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 100) / ("g" * 100)
    folder.mkdir(parents=True)
    async with site(folder / "core.sock") as s:
        assert await s.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert mode(folder / "core.sock") == 0o600
    assert not (folder / "core.sock").exists()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
async def test_h24_the_socket_is_never_open_to_others(
    path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects stays connected, and may raise the remote log start."""
    modes: list[int] = []
    chmod = os.chmod

    def watched(at: Path, to: int) -> None:
        modes.append(mode(at))
        chmod(at, to)

    monkeypatch.setattr(os, "chmod", watched)
    before = os.umask(mask)
    try:
        async with core_at(path):
            modes.append(mode(path))
            assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert set(modes) == {0o600}


async def test_h24_a_call_that_is_cancelled_is_cancelled_in_the_core(path: Path) -> None:
    async with site(path) as s:
        s.core.tier.gate.clear()
        reading, other = (asyncio.ensure_future(s.worker.read(READ)) for _ in range(2))
        await until(lambda: s.core.tier.under_way == 2)
        reading.cancel()
        await until(lambda: s.core.tier.under_way == 1)
        s.core.tier.gate.set()
        assert (await other).size_bytes == 200
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_h36_a_read_that_was_begun_and_is_dropped_is_cancelled_and_holds_nothing(
    path: Path,
) -> None:
    async with site(path) as s:
        s.core.tier.gate.clear()
        begun = begin(s.worker.read(READ))
        await until(lambda: s.core.tier.under_way == 1)
        del begun
        gc.collect()
        await until(lambda: s.core.tier.under_way == 0)
        assert s.memory.held_bytes == 0


async def test_h24_a_barrier_beyond_its_deadline_is_unavailable(path: Path) -> None:
    async with site(path) as s:
        s.core.tier.hang = True
        with pytest.raises(Unavailable):
            await s.worker.barrier(NAMED, 0, 50)


async def test_h36_one_read_leaves_room_for_others(path: Path) -> None:
    async with site(path) as s:
        s.memory.max_bytes = 400
        s.core.tier.gate.clear()
        reads = [
            asyncio.ensure_future(s.worker.read(replace(READ, max_bytes=1_000, offset=offset)))
            for offset in range(10, 14)
        ]
        await until(lambda: s.core.tier.under_way == 4)
        assert {read.max_bytes for read in s.core.tier.reads} == {100}
        s.core.tier.gate.set()
        assert [(await read).size_bytes for read in reads] == [100] * 4


async def test_h24_concurrent_reads_keep_their_own_bytes(path: Path) -> None:
    async with site(path, FakeTier(partitions={0: tier_partition()}, record_bytes=30_000)) as s:
        s.core.tier.gate.clear()
        reads = [replace(READ, offset=at, max_bytes=30_000 * (at % 4)) for at in range(60)]
        tasks = [asyncio.ensure_future(s.worker.read(read)) for read in reads]
        await until(lambda: s.core.tier.under_way == len(reads))
        s.core.tier.gate.set()
        for read, records in zip(reads, await asyncio.gather(*tasks), strict=True):
            end = read.offset + max(1, read.offset % 4)
            assert b"".join(records.records) == blob(read.offset, end, 30_000)


async def test_h36_an_answer_that_nobody_waits_for_any_more_is_not_kept(path: Path) -> None:
    """It was on its way when its caller went."""
    mib = 1 << 20
    async with site(path, FakeTier(partitions={0: tier_partition()}, record_bytes=5 * mib)) as s:
        (link,) = s.core.server._links
        s.worker._link._transport.pause_reading()  # type: ignore[union-attr]
        reading = asyncio.ensure_future(s.worker.read(replace(READ, max_bytes=5 * mib)))
        await until(lambda: queued_bytes(link.frames) > 0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert s.memory.held_bytes == 0
        s.worker._link._transport.resume_reading()  # type: ignore[union-attr]
        assert await s.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert s.memory.slots.mapped_bytes >= 5 * mib  # the answer has come
        assert s.memory.held_bytes == 0


async def test_h24_without_the_core_calls_fail_at_once_and_all_is_back_with_it(path: Path) -> None:
    async with site(path) as s:
        s.core.tier.gate.clear()
        calls = [asyncio.ensure_future(s.worker.read(READ)) for _ in range(3)]
        await until(lambda: s.core.tier.under_way == 3)
        await s.core.server.close()
        for call in calls:
            with pytest.raises(Unavailable):
                await asyncio.wait_for(call, 60)
        await until(lambda: s.core.tier.under_way == 0)
        assert not s.worker.ready()
        assert s.worker.partition(NAMED, 0) == tier_partition()  # to be shown, not to be vouched
        assert s.worker.refusal(tier_partition())
        with pytest.raises(Unavailable):
            await asyncio.wait_for(s.worker.barrier(NAMED, 0, 60_000), 60)
        s.core.tier.gate.set()
        s.core.tier.partitions = {1: tier_partition(partition=1)}
        s.core.begin()
        await s.core.server.start()
        await until(lambda: s.worker.is_connected)
        assert not s.worker.ready()  # until the core has looked at everything once
        await s.core.feed.compare_all()
        await until(s.worker.ready)
        assert s.worker.partition(NAMED, 1) == tier_partition(partition=1)
        gone = s.worker.partition(NAMED, 0)
        assert gone is not None and gone.remote_next_offset == -1
        assert (await s.worker.read(READ)).size_bytes == 200


async def test_h22_what_was_known_is_shown_until_the_next_core_is_ready(path: Path) -> None:
    """A core that has just started shows no views: log starts would change to local ones."""
    async with site(path) as s:
        epochs = epochs_from((3, 0), (4, 50))
        s.core.source.epochs[0] = epochs
        await s.core.feed.compare_all()
        await until(lambda: s.worker.epoch_end(TOPIC_ID, 0, 3) is not None)
        await s.core.server.close()
        await until(lambda: not s.worker.is_connected)
        s.core.source.epochs.clear()
        s.core.tier.partitions = {1: tier_partition(partition=1)}
        s.core.begin()
        await s.core.server.start()
        await until(lambda: s.worker.is_connected)
        with pytest.raises(Invalid):  # the first views came before this answer
            await s.worker._ask(pb.ToCore())
        assert not s.worker.ready()
        assert s.worker.partition(NAMED, 0) == tier_partition()
        assert s.worker.epoch_end(TOPIC_ID, 0, 3) == epochs.end_of(3)
        assert await s.worker.barrier(NAMED, 1, 60_000) == tier_partition(partition=1)
        assert s.worker.partition(NAMED, 1) == tier_partition(partition=1)
        await s.core.feed.compare_all()
        await until(s.worker.ready)
        gone = s.worker.partition(NAMED, 0)
        assert gone is not None and gone.remote_next_offset == -1
        assert s.worker.epoch_end(TOPIC_ID, 0, 3) is None
        s.core.tier.is_ready = False
        await s.core.feed.compare_all()
        await until(lambda: not s.worker.ready())
        gone = s.worker.partition(NAMED, 0)
        assert gone is not None and gone.remote_next_offset == -1


async def test_h24_an_answer_never_replaces_a_newer_view(path: Path) -> None:
    """Both come in one piece: the task that waits for the answer runs after the newer view."""
    async with site(path) as s:
        older, newer = (
            tier_partition(remote_next_offset=110),
            tier_partition(remote_next_offset=120),
        )
        s.core.tier.partitions[0] = older
        seen = s.core.feed.seen
        asking = asyncio.ensure_future(s.worker.barrier(NAMED, 0, 60_000))

        def answer_late(view: object) -> object:
            mirrored = seen(older)
            seen(newer)
            return mirrored

        s.core.feed.seen = answer_late  # type: ignore[method-assign,assignment]
        assert await asking == older
        assert s.worker.partition(NAMED, 0) == newer


async def test_h24_the_view_of_a_barrier_is_seen_before_its_answer(path: Path) -> None:
    async with site(path) as s:
        other = await RawWorker().connect(path)
        other.send(HELLO)
        await until(lambda: len(other.said) == 2)
        s.core.tier.partitions[0] = tier_partition(remote_next_offset=110)
        assert await s.worker.barrier(NAMED, 0, 60_000) == s.core.tier.partitions[0]
        assert s.worker.partition(NAMED, 0) == s.core.tier.partitions[0]
        await until(lambda: len(other.said) == 3)  # every worker gets it
        call = pb.BarrierCall(topic=pb.TopicName(name="archive"), deadline_ms=60_000)
        s.core.tier.partitions[0] = tier_partition(remote_next_offset=120)
        other.send(pb.ToCore(call_id=9, barrier=call))
        await until(lambda: 9 in other.answers())
        assert [said.WhichOneof("body") for said, _ in other.said[3:]] == ["views", "barrier"]
        other.link.close()


async def test_h24_a_worker_of_another_protocol_is_refused(path: Path) -> None:
    async with core_at(path) as core:
        raw = await RawWorker().connect(path)
        raw.send(pb.ToCore(hello=pb.WorkerHello(oldest_protocol=98, newest_protocol=99)))
        await asyncio.wait_for(raw.has_ended.wait(), 60)
        assert raw.said == []
        await until(lambda: core.server.worker_count == 0)


async def test_h24_a_call_before_the_greeting_ends_the_connection(path: Path) -> None:
    async with core_at(path) as core:
        raw = await RawWorker().connect(path)
        call = pb.BarrierCall(topic=pb.TopicName(name="archive"), deadline_ms=60_000)
        raw.send(pb.ToCore(call_id=1, barrier=call), HELLO)
        await asyncio.wait_for(raw.has_ended.wait(), 60)
        assert raw.said == []
        assert core.tier.barriers == 0


async def test_h24_a_call_that_the_core_does_not_know_is_invalid(path: Path) -> None:
    async with core_at(path):
        raw = await RawWorker().connect(path)
        raw.send(HELLO, pb.ToCore(call_id=7))
        await until(lambda: 7 in raw.answers())
        assert raw.answers()[7].error.kind == ErrorKind.INVALID.name
        raw.link.close()


async def test_h24_a_bug_in_a_call_is_its_answer_and_ends_nothing(path: Path) -> None:
    async with site(path) as s:
        s.core.tier.error = KeyError("a bug")  # type: ignore[assignment]
        with pytest.raises(RemoteStorageError, match="a bug") as raised:
            await s.worker.read(READ)
        assert raised.value.kind is ErrorKind.INTERNAL
        s.core.tier.error = None
        assert (await s.worker.read(replace(READ, partition=3))).size_bytes == 200
        assert await s.worker.barrier(TopicRef(topic_id=Uuid(bytes(16))), 0, 60_000) is None


async def test_h24_a_worker_that_takes_nothing_does_not_fill_the_memory_of_the_core(
    path: Path,
) -> None:
    """Neither by answers nor by views; once it takes something again it knows all."""
    mib = 1 << 20
    async with core_at(path, FakeTier(partitions={0: tier_partition()}, record_bytes=mib)) as core:
        raw = await RawWorker().connect(path)
        raw.send(HELLO)
        await until(lambda: len(raw.said) == 2)
        (link,) = core.server._links
        raw.link._transport.pause_reading()  # type: ignore[union-attr]
        read = pb.ReadCall(
            topic_id=TOPIC_ID.raw, offset=0, upper_offset=100, max_bytes=mib, at_least_one=True
        )
        raw.send(*(pb.ToCore(call_id=number, read=read) for number in range(1, 61)))
        await until(lambda: len(core.tier.reads) == 60)
        await asyncio.sleep(0.05)
        most = queued_bytes(link.frames)
        assert most < 8 * mib
        name = "n" * 10_000
        for offset in range(1_000):
            core.tier.partitions[0] = tier_partition(remote_next_offset=offset, topic=name)
            await core.feed.compare_all()
        assert queued_bytes(link.frames) < most + 2 * mib
        raw.link._transport.resume_reading()  # type: ignore[union-attr]
        await until(lambda: len(raw.answers()) == 60)
        last = [said.views for said, _ in raw.said if said.WhichOneof("body") == "views"][-1]
        assert last.partitions[0].remote_next_offset == 999
        assert last.ready
        assert all(len(data) == mib for said, data in raw.said if said.call_id)
        raw.link.close()


async def test_h36_a_core_that_takes_nothing_does_not_fill_the_memory_of_a_worker(
    path: Path,
) -> None:
    """As one that was stopped: a call fails at once when much waits for the core already."""
    mib = 1 << 20
    name = TopicRef(name="n" * 10_000)
    async with site(path) as s:
        (link,) = s.core.server._links
        link.frames._transport.pause_reading()  # type: ignore[union-attr]
        counts = pb.Counts(spliced=[pb.ClientBytes(client_id="c" * 10_000, size_bytes=1)])
        for _ in range(2_000):
            with pytest.raises(Unavailable):
                await s.worker.barrier(name, 0, 0)
            if s.worker.takes_reports:
                s.worker.report(counts)
        assert 0 < queued_bytes(s.worker._link) < 6 * mib
        assert s.worker.ready()  # what it knows is as good as before
        with pytest.raises(Unavailable, match="takes nothing"):
            await s.worker.read(READ)
        assert s.memory.held_bytes == 0
        link.frames._transport.resume_reading()  # type: ignore[union-attr]
        await until(lambda: s.worker.takes_reports)
        assert await s.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert not s.worker._calls
