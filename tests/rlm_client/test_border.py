"""Each record once and in order, whichever tier has it, while trims move the border in mid-read."""

import asyncio

import pytest
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_client.errors import RemoteTierError
from tests.rlm_client.world import PARTITION, World, reading
from tiered_reads.values import ReadMode

BOTH = (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED)
TIERED = (*BOTH, ReadMode.REMOTE_ONLY)


def written(batches: int = 10, *, kafka_start: int = 0, remote_end: int = 0) -> World:
    world = World()
    for number in range(batches):
        world.append(3)
        if number % 3 == 1:
            world.append_aborted(2)
    world.copy(remote_end)
    world.learn()
    world.trim(kafka_start)
    return world


@pytest.mark.parametrize("mode", BOTH)
async def test_a_read_goes_over_the_border(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=21)
    async with reading(world, mode) as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.state.position == world.end
        counters = reader.counters
        assert counters.remote.records + counters.kafka.records == len(world.given)
        assert counters.remote.records > 0 and counters.remote.bytes_read > 0
        assert counters.kafka.records > 0 and counters.kafka.bytes_read > 0
        assert counters.offsets_missed == 0 and counters.failovers >= 1


@pytest.mark.parametrize(("mode", "least"), [(BOTH[0], 15), (BOTH[1], 21)])
async def test_the_preferred_tier_is_read_where_both_have_it(mode: ReadMode, least: int) -> None:
    world = written(kafka_start=15, remote_end=21)
    async with reading(world, mode) as reader:
        await reader.take_until(world.end)
        remote = [offset for offset in world.given if offset < least]
        assert reader.counters.remote.records == len(remote)


async def test_remote_only_reads_nothing_of_kafka_and_goes_on_when_more_is_copied() -> None:
    world = written(kafka_start=6, remote_end=15)
    async with reading(world, ReadMode.REMOTE_ONLY) as reader:
        await reader.take_until(15)
        assert reader.got == [offset for offset in world.given if offset < 15]
        world.copy(world.end)
        world.learn()
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.kafka.bytes_read == 0


@pytest.mark.parametrize("mode", BOTH)
async def test_h37_what_a_reader_does_not_know_yet_is_not_lost(mode: ReadMode) -> None:
    """Kafka was trimmed to what the reader's view of the ledger does not have."""
    world = written(remote_end=9)
    world.copy(21)
    world.trim(21)
    async with reading(world, mode) as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.offsets_missed == 0


async def test_nothing_is_lost_while_nobody_can_decide() -> None:
    world = written(remote_end=9)
    world.copy(21)
    world.trim(21)
    world.leader_away = 5
    async with reading(world, ReadMode.KAFKA_PREFERRED) as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.failed_reads >= 1


@pytest.mark.parametrize("mode", TIERED)
async def test_a_hole_is_passed_and_counted(mode: ReadMode) -> None:
    world = written(kafka_start=21, remote_end=21)
    world.holes = [(9, 12)]
    async with reading(world, mode) as reader:
        await reader.take_until(21)
        assert reader.got[: len(world.given)] == [
            offset for offset in world.given if not 9 <= offset < 12 and offset < reader.got[-1] + 1
        ]
        assert reader.counters.offsets_missed == 3


@pytest.mark.parametrize("mode", TIERED)
async def test_below_the_log_start_the_policy_decides(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=21)
    world.remote_start = 9
    async with reading(world, mode, policy="earliest") as reader:
        await reader.take_until(21)
        assert reader.got[0] == 9
        assert reader.counters.offsets_missed == 9
    async with reading(world, mode, policy="none") as reader:
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await reader.take_until(21)
        assert raised.value.args == ({PARTITION: 0},)
        assert reader.got == []


@pytest.mark.parametrize("mode", BOTH)
async def test_without_a_commit_the_policy_decides(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=21)
    async with reading(world, mode, committed=None, policy="earliest") as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given
    async with reading(world, mode, committed=None, policy="latest") as reader:
        async with asyncio.timeout(30):
            while not reader.state.has_valid_position:
                await reader.take()
        assert (reader.state.position, reader.got) == (world.end, [])
    async with reading(world, mode, committed=None) as reader:
        with pytest.raises(NoOffsetForPartitionError):
            await reader.take_until(world.end)


async def test_earliest_waits_for_the_service_that_knows_the_history() -> None:
    """Kafka's own log start would pass all that is remote."""
    world = written(kafka_start=15, remote_end=21)
    world.leader_away = 10
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=None, policy="earliest"
    ) as reader:
        await reader.take_until(world.end)
        assert reader.got == world.given


async def test_beyond_the_end_the_policy_decides_when_it_stays_so() -> None:
    world = written(kafka_start=3, remote_end=9)
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=world.end + 5, policy="earliest"
    ) as reader:
        async with asyncio.timeout(30):
            while not reader.got:
                await reader.take()
        assert reader.got[0] == 0


async def test_an_end_that_comes_back_resets_nothing() -> None:
    """A new leader may not know its end yet."""
    world = written()
    begun = world.end + 2
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=begun, policy="earliest", settle_ms=5_000
    ) as reader:
        async with asyncio.timeout(30):
            while not reader.counters.failovers:
                assert await reader.take() == []
        assert await reader.take(0.1) == []
        world.append(5)
        await reader.take_until(world.end)
        assert reader.got == list(range(begun, world.end))


async def test_h37_a_hole_that_only_a_late_view_has_is_none() -> None:
    world = written(kafka_start=21, remote_end=21)
    world.holes = [(9, 12)]
    async with reading(world, ReadMode.REMOTE_ONLY, settle_ms=5_000) as reader:
        await reader.take_until(9)
        await reader.take(0.1)
        world.holes = []
        await reader.take_until(21)
        assert reader.got == [offset for offset in world.given if offset < 21]
        assert reader.counters.offsets_missed == 0


async def test_a_topic_that_is_not_tiered_is_read_as_by_aiokafka() -> None:
    world = written(remote_end=15, kafka_start=15)
    world.is_tiered = False
    async with reading(world, ReadMode.KAFKA_PREFERRED, policy="earliest") as reader:
        await reader.take_until(world.end)
        assert reader.got == [offset for offset in world.given if offset >= 15]
        assert reader.counters.offsets_missed == 15


@pytest.mark.parametrize(
    ("committed", "policy"), [(0, "earliest"), (None, "earliest"), (0, "latest")]
)
async def test_a_topic_that_services_deny_and_kafka_keeps_is_an_error(
    committed: int | None,
    policy: str,
) -> None:
    """Else a caller of another cluster's services would begin where Kafka's log does."""
    world = written(remote_end=15, kafka_start=15)
    world.is_tiered = False
    world.configs = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=committed, policy=policy
    ) as reader:
        with pytest.raises(RemoteTierError, match="right to describe the topic"):
            await reader.take_until(world.end)
        assert reader.got == []
        world.is_tiered = True
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize("retention", [("604800000", "-1"), ("-1", "1073741824")])
async def test_what_kafka_may_have_deleted_itself_is_no_error(retention: tuple[str, str]) -> None:
    world = written(remote_end=15, kafka_start=15)
    world.is_tiered = False
    ms, size = retention
    world.configs = {"cleanup.policy": "delete", "retention.bytes": size, "retention.ms": ms}
    async with reading(world, ReadMode.KAFKA_PREFERRED, policy="earliest") as reader:
        await reader.take_until(world.end)
        assert reader.got == [offset for offset in world.given if offset >= 15]


async def test_h37_an_id_that_services_deny_for_a_moment_loses_nothing() -> None:
    """So a service answers a caller that has lost the right to describe the topic."""
    world = written(kafka_start=21, remote_end=21)
    async with reading(world, ReadMode.KAFKA_PREFERRED) as reader:
        await reader.take_until(3)
        world.hidden = 4
        reader.fetcher.seek_to(PARTITION, 0)
        reader.got.clear()
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.offsets_missed == 0
        assert reader.counters.failed_reads >= 1 and world.hidden == 0


async def test_h06_another_topic_of_the_name_is_not_read() -> None:
    world = written(kafka_start=15, remote_end=21)
    world.kafka_topic_id = bytes(16 * [9])
    async with reading(world, ReadMode.KAFKA_PREFERRED) as reader:
        async with asyncio.timeout(30):
            while reader.counters.failed_reads < 2:
                assert await reader.take() == []
        world.kafka_topic_id = world.topic_id
        await reader.take_until(world.end)
        assert reader.got == world.given


@pytest.mark.parametrize("mode", TIERED)
async def test_seek_drops_what_was_fetched(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=21)
    async with reading(world, mode) as reader:
        await reader.take_until(5)
        reader.fetcher.seek_to(PARTITION, 2)
        reader.got.clear()
        await reader.take_until(21)
        assert reader.got == [offset for offset in world.given if 2 <= offset < reader.got[-1] + 1]


@pytest.mark.parametrize("mode", TIERED)
async def test_a_paused_partition_gives_nothing_until_it_is_resumed(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=21)
    async with reading(world, mode) as reader:
        await reader.take_until(3)
        reader.subscription.pause(PARTITION)
        got = list(reader.got)
        for _ in range(5):
            assert await reader.take() == []
        reader.subscription.resume(PARTITION)
        await reader.take_until(21)
        assert reader.got[: len(got)] == got
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]


@pytest.mark.parametrize("mode", TIERED)
async def test_a_record_that_cannot_be_read_takes_no_other_with_it(mode: ReadMode) -> None:
    world = written(kafka_start=21, remote_end=21)
    calls = 0

    def read(value: bytes) -> bytes:
        """Refuses the second record of a batch twice."""
        nonlocal calls
        calls += 1
        if calls in (5, 6):
            raise ValueError("cannot be read")
        return value

    async with reading(world, mode, value_deserializer=read) as reader:
        failures = 0
        async with asyncio.timeout(60):
            while not reader.state.has_valid_position or reader.state.position < 21:
                try:
                    await reader.take()
                except ValueError:
                    failures += 1
        assert failures == 1
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]


async def test_damaged_bytes_are_an_error_and_no_gap() -> None:
    world = written(kafka_start=21, remote_end=21)
    first, after, data = world.batches[1]
    world.batches[1] = (first, after, data[:-1] + bytes([data[-1] ^ 1]))
    async with reading(world, ReadMode.KAFKA_PREFERRED) as reader:
        with pytest.raises(Exception, match="CRC") as raised:
            await reader.take_until(21)
        assert not isinstance(raised.value, RemoteTierError)
        assert reader.got == [0, 1, 2]
        world.batches[1] = (first, after, data)
        await reader.take_until(21)
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]


EVENTS = st.one_of(
    st.tuples(st.just("copy"), st.integers(0, 60)),
    st.tuples(st.just("trim"), st.integers(0, 60)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("learn"), st.just(0)),
    st.tuples(st.just("away"), st.integers(1, 3)),
    st.tuples(st.just("leader_away"), st.integers(1, 3)),
    st.tuples(st.just("refusing"), st.integers(1, 3)),
    st.tuples(st.just("pause"), st.just(0)),
    st.tuples(st.just("abort"), st.integers(1, 3)),
)


@pytest.mark.parametrize("mode", TIERED)
@settings(max_examples=15, deadline=None)
@given(
    events=st.lists(EVENTS, max_size=14),
    most=st.one_of(st.none(), st.integers(1, 5)),
    isolation=st.sampled_from(["read_committed", "read_uncommitted"]),
)
def test_whatever_happens_meanwhile_each_record_comes_once(
    mode: ReadMode, events: list[tuple[str, int]], most: int | None, isolation: str
) -> None:
    asyncio.run(_story(mode, events, most, isolation))


async def _story(
    mode: ReadMode, events: list[tuple[str, int]], most: int | None, isolation: str
) -> None:
    world = written(6, remote_end=9)
    async with reading(world, mode, isolation=isolation) as reader:
        for what, number in events:
            _happens(world, reader, what, number)
            await reader.take(0.005, most)
        if PARTITION in reader.subscription.paused_partitions():
            reader.subscription.resume(PARTITION)
        world.append(2)
        world.copy(world.end)
        world.learn()
        await reader.take_until(world.end)
        everything = [
            offset
            for first, after, data in world.batches
            for offset in range(first, after)
            if isolation == "read_uncommitted" and not _is_marker(data)
        ]
        assert reader.got == (everything or world.given)
        assert reader.counters.offsets_missed == 0


def _is_marker(data: bytes) -> bool:
    return bool(data[22] & 0x20)


def _happens(world: World, reader, what: str, number: int) -> None:  # type: ignore[no-untyped-def]
    match what:
        case "append":
            world.append(number)
        case "abort":
            world.append_aborted(number)
        case "copy":
            world.copy(number)
        case "trim":
            world.trim(number)
        case "learn":
            world.learn()
        case "pause":
            paused = PARTITION in reader.subscription.paused_partitions()
            (reader.subscription.resume if paused else reader.subscription.pause)(PARTITION)
        case _:
            setattr(world, what, number)
