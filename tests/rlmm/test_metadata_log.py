"""Barriers over leaders that lose, lag or were deposed (H17, H42); a run begun again (H3)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition, Uuid
from rlmm.clients import ConnectionSettings
from rlmm.leader_answers import (
    NOTHING_READ,
    EpochEnd,
    EpochQuestion,
    ReadPosition,
    RememberedReads,
)
from rlmm.log_reader import TailRecord
from rlmm.metadata_log import CHECK_INTERVAL_MS, MetadataLog
from rlmm.records import LEDGER_PARTITIONS
from rlmm.resuming import ResumePoint
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, TopicDescription, ledger_spec, settings_spec
from tests.rlmm.builders import mark, point, uuid
from tests.rlmm.leaders import Leaders, memory_record

PARTITION = TopicPartition(LEDGER_TOPIC, 7)
OTHER = TopicPartition(LEDGER_TOPIC, 8)
TOPIC_PARTITIONS = [
    TopicPartition(SETTINGS_TOPIC, 0),
    *(TopicPartition(LEDGER_TOPIC, n) for n in range(LEDGER_PARTITIONS)),
]
ABSENCE_KNOWN_WITHIN_MS = 300_000


class Sink:
    """What came of one topic, and how long each replay is said to have taken."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.replays: list[int] = []
        self.begun_again: list[int] = []

    def apply(self, record: TailRecord) -> None:
        self.values.append(record.value or b"")

    def start_over(self, partition: int) -> None:
        self.begun_again.append(partition)

    def go_live(self, replay_ms: int) -> None:
        self.replays.append(replay_ms)


class Process:
    """A metadata log over leaders in memory; the test moves its clock, and its watch sleeps until
    the test says that an interval is over.
    """

    def __init__(
        self,
        *,
        remembered: dict[str, Uuid] | None = None,
        reads: RememberedReads = NOTHING_READ,
        with_ledger: bool = True,
        may_create: bool = True,
        any_ledger: bool = False,
        leaders_of: type[Leaders] = Leaders,
    ) -> None:
        self.leaders = leaders_of(*TOPIC_PARTITIONS)
        self.ids = {LEDGER_TOPIC: uuid(1), SETTINGS_TOPIC: uuid(2)}
        self.missing: set[str] = set()
        self.now_ms = 0
        self.intervals = asyncio.Semaphore(0)
        self.ledger = Sink()
        self.log = MetadataLog(
            connection=ConnectionSettings(bootstrap_servers=("nowhere:1",), client_id="tests"),
            replication_factor=1,
            describe_topic=self._describe,
            remembered=remembered,
            remembered_reads=reads,
            may_create=may_create,
            with_ledger=with_ledger,
            any_ledger=any_ledger,
            now_ms=lambda: self.now_ms,
            sleep_ms=self._sleep,
            connect=lambda _: self.leaders.reader(),
            make_ends=lambda *_: self.leaders,
        )
        self.log.register(LEDGER_TOPIC, self.ledger)
        self.log.register(SETTINGS_TOPIC, Sink())

    async def _sleep(self, duration_ms: int) -> None:
        if duration_ms == CHECK_INTERVAL_MS:
            await self.intervals.acquire()
        elif duration_ms > CHECK_INTERVAL_MS:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)

    async def _describe(self, name: str) -> TopicDescription | None:
        spec = {LEDGER_TOPIC: ledger_spec(1), SETTINGS_TOPIC: settings_spec(1)}[name]
        if name in self.missing:
            return None
        return self.ids[name], spec.configs, spec.partition_count

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        life = asyncio.ensure_future(self.log.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def interval(self) -> None:
        """The watch has looked once more."""
        self.intervals.release()
        while not self.intervals.locked():  # noqa: ASYNC110 - every turn of the loop is an event
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)

    async def barrier(self) -> None:
        await self.log.barrier(PARTITION, 60_000)


@pytest.fixture
async def ours() -> AsyncIterator[Process]:
    """One that is live and has read 100 records of the partition."""
    process = Process()
    process.leaders.now[PARTITION].append(100)
    async with process.running():
        await process.log.wait_ready()
        yield process


async def test_h17_a_barrier_brings_what_was_there_before_it(ours: Process) -> None:
    await ours.barrier()
    ours.leaders.now[PARTITION].append(3, b"new")
    await ours.barrier()
    assert ours.ledger.values[-3:] == [b"new"] * 3


async def test_h42_no_barrier_passes_a_log_that_lost_its_end(ours: Process) -> None:
    ours.leaders.now[PARTITION].lose(10)
    ours.leaders.now[PARTITION].elect(1)
    with pytest.raises(Unavailable, match="lost records that were read"):
        await ours.barrier()
    assert "lost records" in (ours.log.damage or "")


async def test_h42_no_barrier_passes_a_log_that_grew_to_where_it_was(ours: Process) -> None:
    """Its end offset is just what was read, and not one of the new records will ever come."""
    leader = ours.leaders.now[PARTITION]
    leader.lose(10)
    leader.elect(1)
    leader.append(10, b"new")
    with pytest.raises(Unavailable, match="lost records that were read"):
        await ours.barrier()


async def test_h42_a_leader_deposed_before_the_last_batch_passes_no_barrier(ours: Process) -> None:
    ours.leaders.depose(PARTITION)
    ours.leaders.now[PARTITION].elect(1)
    ours.leaders.now[PARTITION].append(1, b"new")
    while ours.ledger.values[-1] != b"new":  # noqa: ASYNC110 - every turn of the loop is an event
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match=r"no leader of .* confirms"):
        await ours.barrier()
    assert ours.log.damage is None
    assert "confirms" in (ours.log.problem or "")
    del ours.leaders.deposed[PARTITION]
    await ours.barrier()
    assert "confirms" not in (ours.log.problem or "")


class _HalfAway(Leaders):
    """Once `is_away`, nobody answers for epochs, and who asks for an end waits, and is counted."""

    is_away = False
    waiting = 0

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        if self.is_away:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return await super().end_offset(topic_partition, min_insync_replicas)

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.is_away:
            await asyncio.sleep(0)
            raise Unavailable("nobody answers")
        return await super().epoch_ends(questions)


async def test_no_question_outlives_the_barrier_that_has_asked_it() -> None:
    """It would open a connection after its client was closed."""
    process = Process(leaders_of=_HalfAway)
    leaders = process.leaders
    assert isinstance(leaders, _HalfAway)
    leaders.now[PARTITION].append(1)
    async with process.running():
        await process.log.wait_ready()
        leaders.is_away = True
        with pytest.raises(Unavailable, match="nobody answers"):
            await process.barrier()
        assert leaders.waiting == 0


class _BreaksOff(Leaders):
    """Once `is_breaking`, who asks for epochs is cancelled, and nobody has cancelled it."""

    is_breaking = False

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.is_breaking:
            raise asyncio.CancelledError
        return await super().epoch_ends(questions)


async def test_h42_no_barrier_is_passed_where_the_question_for_its_leader_broke_off() -> None:
    process = Process(leaders_of=_BreaksOff)
    leaders = process.leaders
    assert isinstance(leaders, _BreaksOff)
    leaders.now[PARTITION].append(1)
    async with process.running():
        await process.log.wait_ready()
        leaders.is_breaking = True
        with pytest.raises(Unavailable, match=f"barrier of {PARTITION}: .* broke off"):
            await process.barrier()
        leaders.is_breaking = False
        await process.barrier()


async def test_a_barrier_that_takes_too_long_says_what_was_not_read(ours: Process) -> None:
    with pytest.raises(Unavailable, match=f"^reading {PARTITION} to its end took more than 0 ms$"):
        await ours.log.barrier(PARTITION, 0)


async def test_h06_an_end_that_lags_after_an_election_is_no_loss(ours: Process) -> None:
    ours.leaders.now[PARTITION].elect(1)
    ours.leaders.now[PARTITION].behind = 5
    with pytest.raises(Unavailable, match="ends at 95, 100 was read"):
        await ours.barrier()
    assert ours.log.damage is None
    ours.leaders.now[PARTITION].behind = 0
    await ours.barrier()


async def test_h42_one_partitions_loss_is_no_reason_to_refuse_the_other_topic(
    ours: Process,
) -> None:
    ours.leaders.now[PARTITION].lose(1)
    ours.leaders.now[PARTITION].elect(1)
    await ours.log.wait_ready()
    with pytest.raises(Unavailable):
        await ours.barrier()
    with pytest.raises(Unavailable):
        await ours.log.barrier(OTHER, 60_000)
    await ours.log.barrier(TopicPartition(SETTINGS_TOPIC, 0), 60_000)


async def test_h03_a_slow_replay_does_not_make_absence_known() -> None:
    """It was so long that compaction may have taken records from under it. What nobody was there to
    read from is none.
    """
    process = Process()
    process.leaders.now[PARTITION].append(100)
    process.leaders.away.add(PARTITION)
    async with process.running():
        for _ in range(20):
            await asyncio.sleep(0)
    process.now_ms = ABSENCE_KNOWN_WITHIN_MS

    def pass_time() -> None:
        process.now_ms = 3 * ABSENCE_KNOWN_WITHIN_MS

    process.leaders.when_fetched = pass_time
    process.leaders.away.clear()
    async with process.running():
        await process.log.wait_ready()
    async with process.running():
        process.leaders.now[PARTITION].append(1, b"new")
        await process.barrier()
    assert process.ledger.replays == [2 * ABSENCE_KNOWN_WITHIN_MS]
    assert process.ledger.values[-1] == b"new"


LOST, REBUILT = uuid(8), uuid(9)
OF_THE_LOST_ONE = {LEDGER_TOPIC: LOST, SETTINGS_TOPIC: uuid(2)}
READ_OF_THE_LOST_ONE = RememberedReads(
    read_positions={PARTITION: ReadPosition(position=500, leader_epoch=3, remembered=True)},
    lost=f"{PARTITION} has lost records",
    lost_topics=frozenset({LEDGER_TOPIC}),
)


def after_a_rebuild(
    reads: RememberedReads = READ_OF_THE_LOST_ONE,
    *,
    settings_id: Uuid | None = None,
    may_create: bool = True,
) -> Process:
    """The next process, where the topic has another id, and the cluster record names it."""
    process = Process(remembered=OF_THE_LOST_ONE, reads=reads, may_create=may_create)
    process.ids[LEDGER_TOPIC] = process.leaders.ledger_id = REBUILT
    process.ids[SETTINGS_TOPIC] = settings_id or uuid(2)
    return process


async def test_h06_a_rebuilt_ledger_that_the_cluster_record_names_is_ours() -> None:
    process = after_a_rebuild()
    async with process.running():
        await process.log.wait_ready()
        assert process.log.damage is None
        assert process.log.topic_ids[LEDGER_TOPIC] == REBUILT
        assert process.log.reads.lost is None
        await process.barrier()


async def refused(process: Process) -> str:
    """Why a process is not ready, after it has looked often enough."""
    async with process.running():
        for _ in range(200):
            await asyncio.sleep(0)
        assert not process.log.is_ready
        return process.log.damage or ""


async def test_h06_a_ledger_of_another_id_that_nobody_names_is_not_ours() -> None:
    for named in (None, LOST):
        process = after_a_rebuild()
        process.leaders.ledger_id = named
        assert "was recreated" in await refused(process)


@pytest.mark.parametrize("may_create", [True, False])
async def test_h06_a_process_that_remembers_nothing_takes_the_ledger_on_record(
    may_create: bool,
) -> None:
    """A new state directory, while somebody has created the ledger again, or rebuilds it."""
    process = Process(may_create=may_create)
    process.ids[LEDGER_TOPIC], process.leaders.ledger_id = REBUILT, LOST
    assert "was recreated" in await refused(process)
    process = Process(may_create=may_create)
    process.ids[LEDGER_TOPIC] = process.leaders.ledger_id = REBUILT
    async with process.running():
        await process.log.wait_ready()
        assert process.log.topic_ids[LEDGER_TOPIC] == REBUILT


async def test_a_command_that_repairs_may_use_another_ledger_than_the_one_on_record() -> None:
    process = Process(may_create=False, any_ledger=True)
    process.ids[LEDGER_TOPIC], process.leaders.ledger_id = REBUILT, LOST
    async with process.running():
        await process.log.wait_ready()
        assert process.log.topic_ids[LEDGER_TOPIC] == REBUILT


@pytest.mark.parametrize("may_create", [True, False])
async def test_h06_settings_that_were_recreated_name_no_ledger(may_create: bool) -> None:
    process = after_a_rebuild(settings_id=uuid(7), may_create=may_create)
    assert "was recreated" in await refused(process)
    assert process.log.topic_ids[LEDGER_TOPIC] == LOST


@pytest.mark.parametrize("topics", [frozenset(), frozenset({LEDGER_TOPIC, SETTINGS_TOPIC})])
async def test_h42_a_loss_that_was_not_the_ledgers_alone_stays(topics: frozenset[str]) -> None:
    process = after_a_rebuild(replace(READ_OF_THE_LOST_ONE, lost_topics=topics))
    async with process.running():
        await process.log.wait_ready()
        assert "lost records" in (process.log.damage or "")


async def test_h06_a_process_that_has_begun_to_read_takes_no_other_ledger() -> None:
    process = Process()
    async with process.running():
        await process.log.wait_ready()
    process.ids[LEDGER_TOPIC] = process.leaders.ledger_id = REBUILT
    async with process.running():
        for _ in range(200):
            await asyncio.sleep(0)
    assert "was recreated" in (process.log.damage or "")


async def test_ids_are_known_of_what_was_looked_at_and_of_a_topic_that_was_recreated() -> None:
    process = Process(remembered={LEDGER_TOPIC: uuid(1), SETTINGS_TOPIC: uuid(2)})
    assert process.log.known_topic_ids == frozenset()
    async with process.running():
        await process.log.wait_ready()
        first = process.log.known_topic_ids
        assert first == {uuid(1), uuid(2)}
        assert process.log.known_topic_ids is first
        process.ids[LEDGER_TOPIC] = REBUILT
        await process.interval()
        assert process.log.known_topic_ids == {uuid(1), uuid(2), REBUILT}
        process.missing.add(LEDGER_TOPIC)
        await process.interval()
        assert process.log.known_topic_ids == {uuid(1), uuid(2), REBUILT}
        process.missing.clear()
        process.ids[LEDGER_TOPIC] = uuid(8)
        await process.interval()
        assert process.log.known_topic_ids == {uuid(1), uuid(2), uuid(8)}
        assert process.log.topic_ids[LEDGER_TOPIC] == uuid(1)


@pytest.mark.parametrize("may_create", [True, False])
async def test_no_id_is_known_while_one_of_the_topics_was_never_there(may_create: bool) -> None:
    process = Process(remembered={LEDGER_TOPIC: uuid(1)}, may_create=may_create)
    process.missing.add(LEDGER_TOPIC)
    await refused(process)
    assert process.log.known_topic_ids == frozenset()


async def test_settings_alone_are_read_where_the_ledger_is_missing() -> None:
    process = Process(with_ledger=False, may_create=False)
    process.missing.add(LEDGER_TOPIC)
    async with process.running():
        await process.log.wait_ready()
        assert process.log.topic_ids == {SETTINGS_TOPIC: uuid(2)}
        assert process.log.problem is None


class Earlier:
    """What an earlier process has left of the ledger; `asked` are the ids that it was asked for."""

    def __init__(self, points: dict[TopicPartition, ResumePoint]) -> None:
        self.points = points
        self.asked: list[Uuid] = []
        self.dropped_points: list[TopicPartition] = []

    async def restore(self, topic_id: Uuid) -> Mapping[TopicPartition, ResumePoint]:
        self.asked.append(topic_id)
        return self.points

    def dropped(self, topic_partition: TopicPartition, why: str) -> None:
        self.dropped_points.append(topic_partition)


async def test_the_ledger_is_read_on_from_where_an_earlier_process_stopped() -> None:
    """Once: a run that is begun again continues with what this process has read."""
    process = Process()
    process.leaders.now[PARTITION].append(100)
    process.leaders.now[OTHER].append(5)
    earlier = Earlier(
        {
            PARTITION: point(90, 0, mark(memory_record(PARTITION, 89, b"old"))),
            OTHER: point(9, 0),
        }
    )
    process.log.resume_with(earlier)
    for _ in range(2):
        async with process.running():
            await process.log.wait_ready()
            await process.barrier()
        assert len(process.ledger.values) == 10 + 5
        assert earlier.asked == [uuid(1)]
        assert earlier.dropped_points == [OTHER]
        assert process.ledger.begun_again == [OTHER.partition]
    left = process.log.ledger_point(PARTITION.partition)
    assert left == point(100, 0, mark(memory_record(PARTITION, 99, b"old")))
    assert process.log.ledger_read == 105


@pytest.mark.parametrize("position", [100, 101])
async def test_h42_what_is_read_whole_in_spite_of_a_point_is_evidence_all_the_same(
    position: int,
) -> None:
    process = Process()
    process.leaders.now[PARTITION].append(100)
    process.log.remember_read(PARTITION.partition, point(position, 0))
    async with process.running():
        await process.log.wait_ready()
        await process.barrier()
        assert bool(process.log.loss) == (position > 100)
        assert len(process.ledger.values) == 100
