"""ListOffsets and OffsetForLeaderEpoch through the proxy, every version."""

import pytest

from kafka_protocol.apis import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kip405.errors import Corrupt, Unavailable
from rlm.reading.values import TimestampedOffset
from rlm.remote_log.list_offsets import BothTiers
from rlm.remote_log.tier import Watermarks
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeTier,
    Log,
    Value,
    World,
    tier_partition,
    world,
)

LIST_VERSIONS = range(LIST_OFFSETS.versions.low, LIST_OFFSETS.versions.high + 1)


async def list_offset(
    w: World, version: int, timestamp: int, topic: str = TOPIC, replica_id: int = -1
) -> tuple[int, int, int]:
    client = await w.connect()
    request = {
        "replica_id": replica_id,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}],
    }
    answer = await client.call(LIST_OFFSETS, version, request)
    [partition] = answer["topics"][0]["partitions"]
    return partition["error_code"], partition["offset"], partition["leader_epoch"]


@pytest.mark.parametrize("version", LIST_VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "offset", "epoch", "barriers"),
    [
        (-1, 200, 9, 0),
        (-2, 0, 3, 1),
        (-3, -1, -1, 0),
        (-4, 100, 9, 1),
        (-5, 99, 3, 1),
        (-6, 100, 3, 1),
        (1_000, 42, 2, 1),
    ],
)
async def test_list_offsets_over_both_tiers(
    version: int, timestamp: int, offset: int, epoch: int, barriers: int
) -> None:
    async with world() as w:
        w.tier.timestamped = TimestampedOffset(offset=42, timestamp_ms=1_001, leader_epoch=2)
        answered = await list_offset(w, version, timestamp)
        assert answered == (0, offset, epoch if version >= 4 else -1)
        assert w.tier.barriers == barriers


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(-2, 100), (-4, 100), (-5, -1), (-6, 100), (1_000, 120)]
)
async def test_nothing_remote_yet(timestamp: int, expected: int) -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_next_offset=0)
        assert (await list_offset(w, 11, timestamp))[:2] == (0, expected)


@pytest.mark.parametrize(("timestamp", "expected"), [(-2, 5), (1_000, 5), (-4, 0), (-6, 0)])
async def test_h15_the_oldest_offset_is_not_answered_before_the_remote_data_is_settled(
    timestamp: int, expected: int
) -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_next_offset=0, unsettled_next_offset=100)
        assert (await list_offset(w, 11, timestamp))[0] == expected


@pytest.mark.parametrize("timestamp", [-2, -5, -6, 1_000])
async def test_plain_topics_keep_the_brokers_answer(timestamp: int) -> None:
    async with world() as w:
        direct = {-2: 100, -5: -1, -6: -1, 1_000: 120}
        assert (await list_offset(w, 11, timestamp, PLAIN))[:2] == (0, direct[timestamp])
        assert w.tier.barriers == 1


async def test_a_timestamp_later_than_the_brokers_answer_or_none_keeps_it() -> None:
    async with world() as w:
        w.tier.timestamped = TimestampedOffset(offset=130, timestamp_ms=1, leader_epoch=2)
        assert (await list_offset(w, 7, 1_000))[:2] == (0, 120)
        w.tier.timestamped = None
        assert (await list_offset(w, 7, 1_000))[:2] == (0, 120)


@pytest.mark.parametrize("version", LIST_VERSIONS)
@pytest.mark.parametrize("timestamp", [-2, -4, -5, -6, 1_000])
async def test_h17_without_a_passed_barrier_clients_must_ask_again(
    version: int, timestamp: int
) -> None:
    async with world() as w:
        w.tier.barrier_error = Unavailable("replaying")
        assert await list_offset(w, version, timestamp) == (5, -1, -1)


async def test_h17_latest_and_max_timestamp_pass_at_once() -> None:
    async with world() as w:
        w.tier.barrier_error = Unavailable("replaying")
        assert (await list_offset(w, 11, -1))[:2] == (0, 200)
        assert (await list_offset(w, 11, -3))[:2] == (0, -1)


async def test_h04_frozen_is_answered_within_the_brokers_log_only() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(frozen=True)
        assert (await list_offset(w, 11, -2))[0] == 5
        assert (await list_offset(w, 11, 1_000))[0] == 5
        assert (await list_offset(w, 11, -4))[:2] == (0, 100)


async def test_h17_the_remote_log_of_a_partition_that_is_led_elsewhere_is_not_known() -> None:
    """Leadership moved between the broker's answer and the barrier."""
    async with world() as w:
        w.tier.partitions[0] = tier_partition(led_here=False, remote_next_offset=-1)
        for timestamp in (-2, -5, -6, 1_000):
            assert (await list_offset(w, 11, timestamp))[:2] == (5, -1)
        assert (await list_offset(w, 11, -4))[:2] == (0, 100)


async def test_h25_a_lost_time_index_is_a_storage_error() -> None:
    async with world() as w:
        w.tier.error = Corrupt("bad index")
        assert (await list_offset(w, 11, 1_000))[0] == 56
        w.tier.error = Unavailable("store away")
        assert (await list_offset(w, 11, 1_000))[0] == 5


async def test_h21_replicas_and_debuggers_hear_the_broker() -> None:
    async with world() as w:
        assert (await list_offset(w, 11, -2, replica_id=-2))[:2] == (0, 100)
        assert (await list_offset(w, 11, -2, replica_id=1))[:2] == (0, 100)
        assert w.tier.barriers == 0


async def test_errors_of_the_broker_pass() -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=29)
        assert (await list_offset(w, 11, -2))[0] == 29
        assert w.tier.barriers == 0


async def test_pending_upload_asks_for_the_log_start_when_it_is_not_known() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_next_offset=0, watermarks=None)
        w.tier.broker_watermarks = Watermarks(
            high_watermark=9, last_stable_offset=9, log_start_offset=8
        )
        assert (await list_offset(w, 11, -6))[:2] == (0, 8)


async def epoch_end(
    w: World, version: int, epoch: int, replica_id: int = -1
) -> tuple[int, int, int]:
    client = await w.connect()
    request: Value = {
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": epoch}]}]
    }
    if version >= 3:
        request["replica_id"] = replica_id
    answer = await client.call(OFFSET_FOR_LEADER_EPOCH, version, request)
    [partition] = answer["topics"][0]["partitions"]
    return partition["error_code"], partition["leader_epoch"], partition["end_offset"]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_epochs_come_from_the_merged_lineage_where_it_knows_better(version: int) -> None:
    async with world() as w:
        w.tier.epochs = epochs_from((4, 0), (9, 60))
        assert await epoch_end(w, version, 5) == (0, 4, 60)
        assert await epoch_end(w, version, 9) == (0, 9, 100)
        w.tier.epochs = epochs_from((5, 0), (9, 150))
        assert await epoch_end(w, version, 5) == (0, 5, 100)
        w.tier.barrier_error = Unavailable("replaying")
        assert await epoch_end(w, version, 5) == (5, -1, -1)


async def test_an_undefined_epoch_end_is_filled_in() -> None:
    async with world() as w:
        w.tier.epochs = epochs_from((5, 0), (9, 100))
        w.broker.logs[TOPIC, 0] = Log(start=-1)
        assert await epoch_end(w, 4, 5) == (0, 5, 100)


async def test_h21_epochs_of_replicas_pass() -> None:
    async with world() as w:
        w.tier.epochs = epochs_from((4, 0), (9, 60))
        assert await epoch_end(w, 4, 5, replica_id=2) == (0, 5, 100)


async def test_h04_a_frozen_history_corrects_no_epoch_end() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(frozen=True)
        w.tier.epochs = epochs_from((4, 0), (9, 60))
        assert await epoch_end(w, 4, 5) == (0, 5, 100)


async def test_h02_earliest_is_the_lower_of_both_starts() -> None:
    both = BothTiers(FakeTier(), deadline_ms=60_000)
    for start, expected in ((0, 0), (99, 99), (100, None), (150, None)):
        view = tier_partition(remote_log_start_offset=start, remote_next_offset=200)
        found = await both.position(view, -2, 100)
        assert (found and found.offset) == expected


async def test_a_timestamp_is_answered_by_the_lower_of_both_tiers() -> None:
    found = TimestampedOffset(offset=42, timestamp_ms=1_001, leader_epoch=2)
    both = BothTiers(FakeTier(timestamped=found), deadline_ms=60_000)
    for offset, is_ours in ((-1, True), (43, True), (42, False), (41, False)):
        answer = await both.position(tier_partition(), 1_000, offset)
        assert (answer is not None) is is_ours


async def test_h04_an_epoch_end_that_a_frozen_partitions_broker_does_not_know_is_not_answered() -> (
    None
):
    async with world() as w:
        w.tier.partitions[0] = tier_partition(frozen=True)
        w.broker.logs[TOPIC, 0] = Log(start=-1)
        assert await epoch_end(w, 4, 5) == (5, -1, -1)
