"""When the snapshot of the ledger is written, and what of it the next process takes (H6)."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kip405.ids import TopicPartition, Uuid
from rlm.service.ledger_snapshot import LedgerSnapshots
from rlmm.log_reader import TailRecord
from rlmm.manager import Metadata, TopicBasedRemoteLogMetadataManager
from rlmm.records import ledger_partition
from rlmm.resuming import ResumePoint
from rlmm.topic import LEDGER_TOPIC
from rsm_plugins.threads import Threads
from tests.builders.clock import ManualClock
from tests.rlmm.builders import FINISHED, KEY, STARTED, mark, point, record, tail_record, uuid

NUMBER = ledger_partition(KEY)
PARTITION = TopicPartition(LEDGER_TOPIC, NUMBER)
LEDGER_ID = uuid(70)
MINUTE_MS = 60_000
EPOCH = 3


class Clock(ManualClock):
    """Sleeps until the test lets the time pass; `step_ms` pass at each look at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.step_ms = 0
        self._turn = asyncio.Event()
        self._is_asleep = asyncio.Event()

    def monotonic_ms(self) -> int:
        self.now += self.step_ms
        return self.now

    async def sleep_ms(self, duration_ms: float) -> None:
        turn = self._turn
        self._is_asleep.set()
        await turn.wait()
        self.advance(int(duration_ms))

    async def let_the_sleeper_go(self) -> None:
        """Until it sleeps again, or for the first time."""
        self._is_asleep.clear()
        self._turn.set()
        self._turn = asyncio.Event()
        async with asyncio.timeout(60):
            await self._is_asleep.wait()


class MetadataLog:
    """One that has read what the test says that it has."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, Uuid] = {LEDGER_TOPIC: LEDGER_ID}
        self.damage: str | None = None
        self.ledger_read = 0
        self.points: dict[int, ResumePoint] = {}
        self.earlier: object = None
        self.is_ready = True
        self.remembered: dict[int, ResumePoint] = {}

    def register(self, topic: str, sink: object) -> None: ...

    def remember_read(self, partition: int, point: ResumePoint) -> None:
        self.remembered[partition] = point

    def resume_with(self, earlier: object) -> None:
        self.earlier = earlier

    async def wait_ready(self) -> None: ...

    def ledger_point(self, partition: int) -> ResumePoint | None:
        return self.points.get(partition)


class Service:
    """A process with a state dir."""

    def __init__(self, state_dir: Path, threads: Threads, cluster_id: str = "cluster") -> None:
        self.clock = Clock()
        self.log = MetadataLog()
        self.manager = TopicBasedRemoteLogMetadataManager(
            log=cast(Any, self.log), writer=uuid(1), publish_timeout_ms=1
        )
        self.file = state_dir / "ledger.snapshot"
        metadata = Metadata(log=cast(Any, self.log), settings=cast(Any, None), manager=self.manager)
        self.snapshots = LedgerSnapshots(
            metadata, threads, self.clock, state_dir=state_dir, cluster_id=cluster_id
        )
        self.life: asyncio.Task[None] | None = None

    def read(self, *records: TailRecord) -> None:
        for one in records:
            self.manager.apply(one)
            self.log.ledger_read += 1
            left = point(one.offset + 1, EPOCH, mark(one))
            self.log.points[one.topic_partition.partition] = left

    async def start(self) -> None:
        self.manager.go_live(0)
        self.life = asyncio.ensure_future(self.snapshots.run())
        await self.pass_ms(0)

    async def pass_ms(self, duration_ms: int) -> None:
        """The service looks once more, so much later; files are written in threads."""
        self.clock.advance(duration_ms)
        await self.clock.let_the_sleeper_go()

    async def stop(self) -> None:
        assert self.life is not None
        self.life.cancel()
        await asyncio.gather(self.life, return_exceptions=True)
        await self.snapshots.close()

    def written(self) -> bool:
        """Whether the file was written since the last question."""
        is_there = self.file.exists()
        self.file.unlink(missing_ok=True)
        return is_there


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("tests", 2, hang_ms=60_000)
    yield made
    made.close()


@pytest.fixture
async def ours(tmp_path: Path, threads: Threads) -> AsyncIterator[Service]:
    """One that has read two records, and written what it knows."""
    made = Service(tmp_path, threads)
    made.read(tail_record(record(0, 1, STARTED)), tail_record(record(1, 1, FINISHED, previous=0)))
    made.manager.go_live(0)
    await made.snapshots.write()
    yield made


async def restored(service: Service, topic_id: Uuid = LEDGER_ID) -> tuple[Any, list[Any]]:
    with capture_logs() as logs:
        points = await service.snapshots.restore(topic_id)
    return points, [one["event"] for one in logs]


async def test_the_next_process_begins_with_what_was_written(
    ours: Service, tmp_path: Path, threads: Threads
) -> None:
    following = Service(tmp_path, threads)
    assert following.log.earlier is following.snapshots
    points, events = await restored(following)
    assert events == ["ledger_snapshot_loaded"]
    assert gc.isenabled()
    assert points == {PARTITION: ours.log.points[NUMBER]}
    assert points[PARTITION].position == 2
    assert dict(following.manager.ledger(KEY).entries) == dict(ours.manager.ledger(KEY).entries)
    following.manager.start_over(NUMBER)
    assert following.manager.partitions() == ()


@pytest.mark.parametrize("what", ["cluster", "topic", "torn", "changed"])
async def test_h06_a_snapshot_that_is_not_of_this_ledger_is_dropped_with_a_word(
    ours: Service, tmp_path: Path, threads: Threads, what: str
) -> None:
    """Another cluster's, that of a topic that was recreated, one that is not whole."""
    whole = ours.file.read_bytes()
    if what == "torn":
        ours.file.write_bytes(whole[: len(whole) // 2])
    if what == "changed":
        ours.file.write_bytes(whole[:20] + b"?" + whole[21:])
    following = Service(tmp_path, threads, "other" if what == "cluster" else "cluster")
    points, events = await restored(following, uuid(71) if what == "topic" else LEDGER_ID)
    assert gc.isenabled()
    assert (points, events) == ({}, ["ledger_snapshot_dropped"])
    assert following.manager.partitions() == ()


@pytest.mark.parametrize("day", [NUMBER, NUMBER + 50, NUMBER + 1])
async def test_each_day_another_partition_is_read_whole(
    ours: Service, tmp_path: Path, threads: Threads, day: int
) -> None:
    """How far it was read is evidence all the same (H42)."""
    following = Service(tmp_path, threads)
    following.clock.wall_ahead_ms = day * 86_400_000
    points, events = await restored(following)
    assert events == ["ledger_snapshot_loaded"]
    if day % 50 == NUMBER:
        assert (points, following.manager.partitions()) == ({}, ())
        assert following.log.remembered == ours.log.points
    else:
        assert list(points) == [PARTITION]
        assert following.log.remembered == {}


async def test_a_first_start_has_nothing_to_say(tmp_path: Path, threads: Threads) -> None:
    assert await restored(Service(tmp_path, threads)) == ({}, [])


@pytest.mark.parametrize("damage", ["lost records", None])
async def test_h42_nothing_is_written_of_a_ledger_that_is_damaged(
    ours: Service, damage: str | None
) -> None:
    ours.written()
    ours.log.damage = damage
    await ours.snapshots.write()
    assert ours.written() == (damage is None)


@pytest.mark.parametrize("what", ["gap", "unreadable", "late"])
async def test_h03_a_partition_that_must_be_read_again_is_left_out(
    ours: Service, tmp_path: Path, threads: Threads, what: str
) -> None:
    if what == "gap":
        del ours.log.points[NUMBER]
    if what == "unreadable":
        broken = tail_record(record(2, 5, STARTED))
        ours.read(TailRecord(**{**_fields(broken), "value": b"\x01\x00\x00?"}))
    if what == "late":
        ours.manager.go_live(10 * MINUTE_MS)
    await ours.snapshots.write()
    points, _ = await restored(Service(tmp_path, threads))
    assert points == {}


def _fields(one: TailRecord) -> dict[str, Any]:
    return {name: getattr(one, name) for name in TailRecord.__slots__}


async def test_it_is_written_when_there_is_enough_that_is_new(ours: Service) -> None:
    ours.written()
    await ours.start()
    assert not ours.written()
    ours.log.ledger_read += 19_999
    await ours.pass_ms(MINUTE_MS)
    assert not ours.written()
    ours.log.ledger_read += 1
    await ours.pass_ms(MINUTE_MS)
    assert ours.written()
    await ours.pass_ms(20 * MINUTE_MS)
    assert not ours.written()
    ours.log.ledger_read += 1
    await ours.pass_ms(0)
    assert ours.written()
    await ours.stop()
    assert not ours.written()


async def test_it_is_written_at_a_stop_where_anything_is_new(ours: Service) -> None:
    await ours.start()
    ours.written()
    ours.read(tail_record(record(2, 2, STARTED)))
    await ours.stop()
    assert ours.written()


async def test_nothing_is_written_at_a_stop_before_the_ledger_was_read(ours: Service) -> None:
    """It would replace what an earlier process knew of it."""
    await ours.start()
    ours.written()
    ours.log.is_ready = False
    ours.log.ledger_read += 1
    await ours.stop()
    assert not ours.written()


async def test_h06_a_service_that_was_refused_leaves_the_snapshot_of_a_later_version(
    ours: Service,
) -> None:
    """Its snapshots are not run before the formats are checked, but closed in any case."""
    whole = ours.file.read_bytes()
    ours.read(tail_record(record(2, 2, STARTED)))
    await ours.snapshots.close()
    assert ours.file.read_bytes() == whole


async def test_it_is_written_at_the_first_start_and_after_a_drop(
    tmp_path: Path, threads: Threads
) -> None:
    first = Service(tmp_path, threads)
    first.read(tail_record(record(0, 1, STARTED)))
    await first.start()
    assert first.file.exists()
    following = Service(tmp_path, threads)
    await restored(following)
    following.snapshots.dropped(PARTITION, "a reason")
    first.written()
    await following.start()
    assert following.written()
    for one in (first, following):
        await one.stop()


async def test_writing_rests_twenty_times_as_long_as_it_takes(ours: Service) -> None:
    ours.clock.step_ms = 30_000
    ours.log.ledger_read += 20_000
    await ours.start()
    assert ours.written()
    ours.clock.step_ms = 0
    ours.log.ledger_read += 20_000
    await ours.pass_ms(7 * MINUTE_MS)
    assert not ours.written()
    await ours.pass_ms(3 * MINUTE_MS)
    assert ours.written()
    await ours.stop()


async def test_a_disk_that_refuses_is_tried_again_later(ours: Service) -> None:
    ours.file.unlink()
    ours.file.mkdir()
    ours.log.ledger_read += 20_000
    with capture_logs() as logs:
        await ours.start()
    assert [one["event"] for one in logs] == ["ledger_snapshot_not_written"]
    async with asyncio.timeout(60):
        while list(ours.file.parent.iterdir()) != [ours.file]:  # noqa: ASYNC110 - done by a thread
            await asyncio.sleep(0.01)
    ours.file.rmdir()
    await ours.pass_ms(5 * MINUTE_MS)
    assert not ours.file.exists()
    await ours.pass_ms(5 * MINUTE_MS)
    assert ours.file.exists()
    await ours.stop()
