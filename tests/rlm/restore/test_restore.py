"""A restore gives each committed record once, in order and unchanged, wherever it is broken off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from kip405.errors import Corrupt, Fenced, Invalid, NotFound, Unavailable
from kip405.indexes import AbortedTransaction
from rlm.restore.target import CREATED_WITH
from rlm.restore.transactions import TRANSACTION_TIMEOUT_MS
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import TOPIC
from tests.kip405.batch_builder import batch, control_batch, with_attributes
from tests.rlm.restore.kafka_model import KafkaModel
from tests.rlm.restore.world import NEW, World

LOG_APPEND_TIME = 0x08


@pytest.fixture
async def kafka() -> AsyncIterator[KafkaModel]:
    async with KafkaModel(slow_markers=1).running() as model:
        yield model


async def test_each_committed_record_once(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    done = await world.restore()
    assert world.restored() == world.expected[0]
    assert len(world.expected[0]) == 15
    assert done.target.is_new
    assert kafka.configs[NEW] == CREATED_WITH
    [report] = done.partitions
    assert report.progress is not None
    assert (report.progress.source_offset, report.progress.record_count) == (23, 15)
    assert (report.is_complete, report.is_repeated) == (True, False)


async def test_a_second_run_writes_nothing(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    await world.restore()
    end = kafka.logs[NEW, 0].end
    done = await world.restore()
    assert (kafka.logs[NEW, 0].end, done.is_complete, done.target.is_new) == (end, True, False)


async def test_what_was_copied_since_is_added(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    await world.restore()
    world.put(batch(23, 10))
    await world.restore()
    assert world.restored() == world.expected[0]


async def killed_run(world: World, number: int, fault: str) -> bool:
    """A restore whose process is gone with that request: no later one arrives. Whether it came so
    far.
    """
    task = asyncio.ensure_future(world.restore())

    def fail(count: int, name: str) -> str:
        if count < number:
            return ""
        task.cancel()
        return fault if count == number else "before"

    world.kafka.on_request = fail
    with suppress(asyncio.CancelledError):
        await task
    world.kafka.on_request = lambda count, name: ""
    return task.cancelled()


@pytest.mark.parametrize("fault", ["before", "after", "late"])
async def test_killed_at_any_request_and_run_again(
    tmp_path: Path, kafka: KafkaModel, fault: str
) -> None:
    requests = 0
    for number in range(1, 60):
        kafka.forget()
        world = World(tmp_path / str(number), kafka)
        world.fill()
        is_killed = await killed_run(world, number, fault)
        await world.restore()
        assert world.restored() == world.expected[0], f"{fault} request {number}"
        if not is_killed:
            break
        requests = number
    assert requests > 20


@pytest.mark.parametrize("fault", ["before", "after", "late"])
async def test_a_connection_that_breaks_is_no_end(
    tmp_path: Path, kafka: KafkaModel, fault: str
) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    kafka.on_request = lambda count, name: fault if count % 29 == 0 else ""
    done = await world.restore()
    assert done.is_complete
    assert world.restored() == world.expected[0]


async def test_another_restore_takes_over(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    others: list[str] = []

    def begin_another(count: int, name: str) -> str:
        if name == "AddOffsetsToTxn" and kafka.logs[NEW, 0].end and not others:
            others.append(name)
            kafka.begin_producer(next(iter(kafka.ids)))
        return ""

    kafka.on_request = begin_another
    with pytest.raises(Fenced, match="another `rlm restore`"):
        await world.restore()
    assert others
    await world.restore()
    assert world.restored() == world.expected[0]


async def test_a_stop_leaves_nothing_half_done(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()

    def stop(count: int, name: str) -> str:
        if name == "Produce":
            assert world.running is not None
            world.running.stop()
        return ""

    kafka.on_request = stop
    done = await world.restore()
    assert not done.is_complete
    log = kafka.logs[NEW, 0]
    assert (log.aborted, log.open) == ([], {})
    assert world.restored() == world.expected[0][:4]
    kafka.on_request = lambda count, name: ""
    await world.restore()
    assert world.restored() == world.expected[0]
    assert log.aborted == []


async def test_slow_brokers_get_transactions_that_do_not_time_out(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    """Also many small batches are slow: five of them come with each round trip."""
    world = World(tmp_path, kafka)
    world.put(b"".join(batch(at, 2, value=b"%d" % at) for at in range(0, 46, 2)))
    durations: list[int] = []

    def slow(count: int, name: str) -> str:
        if name == "AddPartitionsToTxn":
            durations.append(-world.clock.now)
        elif name == "Produce":
            world.clock.advance(6_000)
        elif name == "EndTxn" and durations:
            durations[-1] += world.clock.now
        return ""

    kafka.on_request = slow
    await world.restore(portion_bytes=1 << 20)
    assert max(durations) < TRANSACTION_TIMEOUT_MS
    assert world.restored() == world.expected[0]
    log = kafka.logs[NEW, 0]
    assert (log.aborted, log.open) == ([], {})


async def test_times_of_append_are_kept_in_the_records(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.put(with_attributes(batch(0, 5, compression=1), LOG_APPEND_TIME))
    await world.restore()
    assert world.restored() == world.expected[0]
    assert {row[0] for row in world.restored()} == {1_004}


async def test_partitions_stay_apart(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    for number in (0, 2, 5):
        world.put(batch(0, 3 + number, value=b"%d" % number), partition=number)
    await world.restore(partition=2)
    assert world.restored(0) == []
    await world.restore(partitions=6)
    for number, rows in world.expected.items():
        assert world.restored(number) == rows
    assert sorted(number for _, number in kafka.logs) == list(range(6))


async def test_another_number_of_partitions_is_refused(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    kafka.add_topic(NEW, 3)
    with pytest.raises(Invalid, match="3 partitions, and 1"):
        await world.restore()
    assert (await world.restore(partitions=3)).is_complete


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("message.timestamp.type", "LogAppendTime", "timestamps"),
        ("cleanup.policy", "delete,compact", "compacted"),
    ],
)
async def test_a_topic_that_changes_records_is_refused(
    tmp_path: Path, kafka: KafkaModel, name: str, value: str, match: str
) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    kafka.add_topic(NEW, 1, **{name: value})
    with pytest.raises(Invalid, match=match):
        await world.restore()


async def test_a_retention_of_the_target_has_to_be_allowed(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    kafka.add_topic(NEW, 1, **{"retention.ms": "1000"})
    with pytest.raises(Invalid, match=r"retention.ms=1000: .* --allow-retention"):
        await world.restore()
    assert kafka.logs[NEW, 0].end == 0
    [remark] = (await world.restore(allows_retention=True)).target.remarks
    assert "retention.ms=1000" in remark


async def test_a_topic_with_records_is_refused(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    kafka.add_topic(NEW, 1)
    kafka.logs[NEW, 0].append(batch(0, 3))
    for _ in range(2):
        with pytest.raises(Invalid, match="offsets 0 to 2, and no progress"):
            await world.restore(allows_others=True)
    assert kafka.logs[NEW, 0].end == 3


async def test_a_topic_whose_records_were_deleted_is_refused_without_progress(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    """A service may have trimmed what was restored: it is in the remote tier of the new topic."""
    world = World(tmp_path, kafka)
    world.fill()
    await world.restore()
    log = kafka.logs[NEW, 0]
    log.start = end = log.end
    kafka.offsets.clear()
    with pytest.raises(Invalid, match=f"had offsets 0 to {end - 1}, and no progress"):
        await world.restore(allows_others=True)
    assert log.end == end


async def test_a_topic_is_not_restored_into_itself(tmp_path: Path, kafka: KafkaModel) -> None:
    """The service would copy it again, behind the originals."""
    world = World(tmp_path, kafka)
    world.fill()
    kafka.add_topic(NEW, 1)
    kafka.topics[NEW] = PARTITION.topic_id
    with pytest.raises(Invalid, match="the source itself"):
        await world.restore(allows_others=True)
    assert kafka.logs[NEW, 0].end == 0


async def test_records_of_others_are_not_hidden_behind(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    await world.restore()
    kafka.logs[NEW, 0].append(batch(0, 3))
    assert (await world.restore()).is_complete
    world.put(batch(23, 10))
    with pytest.raises(Invalid, match="somebody else"):
        await world.restore()
    await world.restore(allows_others=True)
    assert len(world.restored()) == len(world.expected[0]) + 3


async def test_aborted_attempts_are_no_others(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    dead = False

    def fail(count: int, name: str) -> str:
        nonlocal dead
        fault = "before" if dead else "after" if name == "Produce" else ""
        dead = dead or bool(fault)
        return fault

    kafka.on_request = fail
    with pytest.raises(Unavailable):
        await world.restore()
    kafka.on_request = lambda count, name: ""
    [report] = (await world.restore()).partitions
    assert kafka.logs[NEW, 0].aborted
    assert report.is_repeated
    assert world.restored() == world.expected[0]


async def test_a_target_that_lost_records_is_refused(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    await world.restore()
    world.put(batch(23, 10))
    log = kafka.logs[NEW, 0]
    log.batches, log.end = log.batches[:1], 4
    with pytest.raises(Invalid, match="lost records"):
        await world.restore()


async def test_offsets_that_no_segment_has_are_named(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.put(batch(0, 4))
    world.put(batch(10, 4))
    with pytest.raises(Invalid, match=f"{TOPIC}-0 4 to 9.*--skip-holes"):
        await world.restore()
    assert NEW not in kafka.topics
    await world.restore(skips_holes=True)
    assert world.restored() == world.expected[0]


async def test_what_is_missing_at_the_begin_is_remarked(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.put(batch(10, 4))
    [remark] = (await world.restore()).remarks
    assert "no segment has offsets 0 to 9" in remark
    assert world.restored() == world.expected[0]


async def test_a_source_that_went_on_is_a_hole_too(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.put(batch(0, 4))
    await world.restore()
    world.rig.store.objects.clear()
    world.put(batch(10, 4))
    with pytest.raises(Invalid, match="begins at 10 by now, and the restore has come to 4"):
        await world.restore()
    await world.restore(skips_holes=True)
    assert world.restored() == world.expected[0]


async def test_a_damaged_segment_is_named_and_what_is_before_stays(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    [name] = [
        one
        for one in world.rig.store.objects
        if "/00000000000000000012-" in one and one.endswith(".log")
    ]
    good = world.rig.store.objects[name]
    world.rig.store.objects[name] = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(Corrupt, match="offsets 12 to 22"):
        await world.restore()
    assert world.restored() == world.expected[0][:8]
    del world.rig.store.objects[name]
    with pytest.raises(NotFound, match="offsets 12 to 22"):
        await world.restore()
    world.rig.store.objects[name] = good
    await world.restore()
    assert world.restored() == world.expected[0]


async def test_others_who_write_meanwhile_are_noticed(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()

    def write_too(count: int, name: str) -> str:
        if name == "Produce" and kafka.logs[NEW, 0].end == 5:
            kafka.logs[NEW, 0].append(batch(0, 1))
        return ""

    kafka.on_request = write_too
    with pytest.raises(Invalid, match="somebody else writes"):
        await world.restore()
    assert len(world.restored()) == 4 + 1


async def test_an_aborted_attempt_of_the_same_command_is_reported(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    cut: list[int] = []

    def cut_once(count: int, name: str) -> str:
        if name != "Produce" or cut:
            return ""
        cut.append(count)
        return "after"

    kafka.on_request = cut_once
    [report] = (await world.restore()).partitions
    assert kafka.logs[NEW, 0].aborted
    assert (report.is_complete, report.is_repeated) == (True, True)


@pytest.mark.parametrize("has_aborted_attempt", [False, True])
async def test_a_progress_that_lost_commits_is_refused(
    tmp_path: Path, kafka: KafkaModel, *, has_aborted_attempt: bool
) -> None:
    """The offsets topic has lost its tail, or somebody has set the group's offsets back."""
    world = World(tmp_path, kafka)
    world.fill()
    older: list[dict[tuple[str, str, int], tuple[int, str]]] = []

    def remember(count: int, name: str) -> str:
        if name != "Produce" or older or not kafka.logs[NEW, 0].end:
            return ""
        older.append(dict(kafka.offsets))
        return "after" if has_aborted_attempt else ""

    kafka.on_request = remember
    await world.restore()
    assert bool(kafka.logs[NEW, 0].aborted) is has_aborted_attempt
    end = kafka.logs[NEW, 0].end
    kafka.offsets |= older[0]
    with pytest.raises(Invalid, match="records would come twice"):
        await world.restore()
    assert kafka.logs[NEW, 0].end == end


async def test_an_old_coordinator_is_not_believed(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    world.fill()
    seen: list[dict[tuple[str, str, int], tuple[int, str]]] = []

    def go_back(count: int, name: str) -> str:
        if name != "Produce":
            return ""
        seen.append(dict(kafka.offsets))
        kafka.offsets |= seen[0]
        return "before" if len(seen) > 1 else ""

    kafka.on_request = go_back
    with pytest.raises(Unavailable, match="source offset 0, and 4 was committed"):
        await world.restore()
    kafka.on_request = lambda count, name: ""
    kafka.offsets |= seen[1]
    await world.restore()
    assert world.restored() == world.expected[0]


ABORT, COMMIT = 0, 1
OTHER = AbortedTransaction(7, 4, 10)
ACCEPTED = ("orders-0",)


def two_histories(world: World, *, was_aborted: bool, has_behind: bool = True) -> None:
    """An unclean election at offset 10 cut off the end of a transaction, which ends otherwise."""
    opened = batch(4, 3, transactional=True, producer_id=7, value=b"opened")
    gone = control_batch(10, COMMIT if was_aborted else ABORT) + batch(11, 2, value=b"gone")
    aborted = () if was_aborted else (OTHER,)
    hidden = [gone, *([opened] if was_aborted else [])]
    world.put(batch(0, 4) + opened + batch(7, 3) + gone, aborted=aborted, hidden=hidden)
    aborted = (OTHER,) if was_aborted else ()
    behind = control_batch(10, ABORT if was_aborted else COMMIT) + batch(11, 3, value=b"behind")
    if not has_behind:
        behind = batch(14, 3, value=b"far behind")
    world.put(behind, aborted=aborted, epochs={0: 0, 1: 10})


@pytest.mark.parametrize("was_aborted", [True, False])
async def test_the_leaders_history_says_how_a_transaction_ended(
    tmp_path: Path, kafka: KafkaModel, *, was_aborted: bool
) -> None:
    world = World(tmp_path, kafka)
    two_histories(world, was_aborted=was_aborted)
    with pytest.raises(Invalid, match="offsets 10 to 12 are doubtful"):
        await world.restore()
    assert not kafka.logs
    await world.restore(accepted=ACCEPTED)
    assert world.restored() == world.expected[0]


async def test_how_a_transaction_ended_is_not_guessed(tmp_path: Path, kafka: KafkaModel) -> None:
    world = World(tmp_path, kafka)
    two_histories(world, was_aborted=False, has_behind=False)
    with pytest.raises(Invalid, match="offset 4 belongs to a transaction"):
        await world.restore(skips_holes=True, accepted=ACCEPTED)


async def test_a_transaction_that_ends_behind_the_copies_is_as_its_copier_says(
    tmp_path: Path, kafka: KafkaModel
) -> None:
    world = World(tmp_path, kafka)
    opened = batch(4, 3, transactional=True, producer_id=7, value=b"opened")
    world.put(batch(0, 4) + opened, aborted=[OTHER], hidden=[opened])
    await world.restore()
    assert world.restored() == world.expected[0]
