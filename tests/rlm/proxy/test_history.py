"""What limited clients are shown of the past, beside clients without a limit."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.apis import (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafka_protocol.error_codes import LEADER_NOT_AVAILABLE, NONE, OFFSET_OUT_OF_RANGE
from kip405.errors import Unavailable
from kip405.history import FULL, LOCAL, History, HistoryRule
from rlm.plans.client_history import HistoryRules, WindowStart
from rlm.reading.values import TimestampedOffset
from rlm.remote_log.tier import TierPartition
from tests.builders.snapshots import epochs_from
from tests.rlm.proxy.fakes import (
    TOPIC,
    FakeTier,
    Value,
    World,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_sasl import SaslBroker, log_in

WINDOW = History(7_000)
STARTS = (WindowStart(7_000, 60),)
RULES = HistoryRules(
    FULL,
    (
        HistoryRule(history=LOCAL, client_ids="local"),
        HistoryRule(history=WINDOW, client_ids="window"),
    ),
)
EARLIEST = -2
SEEN_FROM = {"local": 100, "window": 60, "full": 0}


def limited(**changes: Any) -> FakeTier:
    """[0, 100) is remote, of which [60, 100) is within the window."""
    return FakeTier(partitions={0: tier_partition(window_starts=STARTS, **changes)})


async def client_of(w: World, client_id: str) -> RawClient:
    client = await w.connect()
    client.client_id = client_id
    return client


async def fetched(client: RawClient, offset: int, version: int = 12, **more: Any) -> Value:
    return only(await client.call(FETCH, version, fetch_request(version, asked(offset, **more))))


async def listed(client: RawClient, timestamp: int, version: int = 7) -> tuple[int, int]:
    one = {"partition_index": 0, "timestamp": timestamp}
    request = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [one]}]}
    answer = await client.call(LIST_OFFSETS, version, request)
    [found] = answer["topics"][0]["partitions"]
    return found["error_code"], found["offset"]


@pytest.mark.parametrize("client_id", SEEN_FROM)
async def test_earliest_is_where_the_client_may_begin_and_it_reads_all_from_there(
    client_id: str,
) -> None:
    async with world(limited(), history=RULES) as w:
        client = await client_of(w, client_id)
        start = SEEN_FROM[client_id]
        assert await listed(client, EARLIEST) == (NONE, start)
        at = start
        while at < 200:
            found = await fetched(client, at)
            assert (found["error_code"], found["log_start_offset"]) == (NONE, start)
            records = found["records"]
            assert records == blob(at, at + len(records) // 10)
            assert records
            at += len(records) // 10


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
@pytest.mark.parametrize(("client_id", "offset"), [("local", 99), ("local", 0), ("window", 59)])
async def test_below_it_a_fetch_is_out_of_range_as_at_a_plain_broker(
    client_id: str, offset: int, version: int
) -> None:
    async with world(limited(), history=RULES) as w:
        client = await client_of(w, client_id)
        refused = await fetched(client, offset, version)
        assert refused["error_code"] == OFFSET_OUT_OF_RANGE
        assert (refused["high_watermark"], refused.get("log_start_offset", -1)) == (-1, -1)
        assert not refused["records"]
        assert not w.tier.reads
        # Another client reads the same offset meanwhile.
        assert (await fetched(await client_of(w, "full"), offset, version))["error_code"] == NONE


async def test_h17_a_window_is_out_of_range_behind_a_barrier_only() -> None:
    tier = limited()
    tier.barrier_error = Unavailable("behind")
    async with world(tier, history=RULES) as w:
        client = await client_of(w, "window")
        assert (await fetched(client, 30))["error_code"] == NONE
        assert await listed(client, EARLIEST) == (LEADER_NOT_AVAILABLE, -1)


async def test_h17_nothing_is_out_of_range_while_the_window_is_not_known() -> None:
    tier = FakeTier(partitions={0: tier_partition()})
    async with world(tier, history=RULES) as w:
        client = await client_of(w, "window")
        for offset in (30, 80):
            found = await fetched(client, offset)
            assert (found["error_code"], found["high_watermark"]) == (NONE, 200)
            assert not found["records"]
        assert await listed(client, EARLIEST) == (LEADER_NOT_AVAILABLE, -1)
        assert (await listed(client, 1_000))[0] == LEADER_NOT_AVAILABLE
        in_range = await fetched(client, 120)
        assert (in_range["error_code"], in_range["log_start_offset"]) == (NONE, 100)


@pytest.mark.parametrize("client_id", SEEN_FROM)
async def test_without_a_remote_log_start_every_client_gets_the_answers_of_the_broker(
    client_id: str,
) -> None:
    """A partition that is new, or was discarded: there is nothing that a window could hide."""
    nothing = {"remote_log_start_offset": -1, "remote_next_offset": -1}
    tier = FakeTier(partitions={0: tier_partition(**nothing)})
    async with world(tier, history=RULES) as w:
        client = await client_of(w, client_id)
        assert (await fetched(client, 30))["error_code"] == OFFSET_OUT_OF_RANGE
        assert await listed(client, EARLIEST) == (NONE, 100)
        in_range = await fetched(client, 120)
        assert (in_range["log_start_offset"], in_range["records"]) == (100, blob(120, 200))
        # The start is written, and what is remote is shown as far as the window goes.
        w.tier.partitions[0] = tier_partition(window_starts=STARTS)
        assert await listed(client, EARLIEST) == (NONE, SEEN_FROM[client_id])


async def test_h15_without_a_remote_log_start_an_attempt_that_is_open_makes_every_client_wait() -> (
    None
):
    view = tier_partition(
        remote_log_start_offset=-1, remote_next_offset=-1, unsettled_next_offset=60
    )
    async with world(FakeTier(partitions={0: view}), history=RULES) as w:
        for client_id in ("full", "window"):
            client = await client_of(w, client_id)
            found = await fetched(client, 30)
            assert (found["error_code"], found["high_watermark"]) == (NONE, 200)
            assert not found["records"]
            assert (await fetched(client, 80))["error_code"] == OFFSET_OUT_OF_RANGE


async def test_g6_the_local_log_alone_needs_neither_a_barrier_nor_a_tier_that_is_ready() -> None:
    tier = limited()
    tier.is_ready, tier.barrier_error = False, Unavailable("behind")
    async with world(tier, history=RULES) as w:
        client = await client_of(w, "local")
        assert await listed(client, EARLIEST) == (NONE, 100)
        assert (await fetched(client, 99))["error_code"] == OFFSET_OUT_OF_RANGE
        assert (await fetched(client, 100))["records"] == blob(100, 200)
        assert w.tier.barriers == 0


async def test_a_window_that_moves_on_while_a_client_reads_ends_it_as_retention_does() -> None:
    async with world(limited(), history=RULES) as w:
        client = await client_of(w, "window")
        assert (await fetched(client, 70))["records"]
        view = w.tier.partitions[0]
        w.tier.partitions[0] = replace(view, window_starts=(WindowStart(7_000, 80),))
        assert (await fetched(client, 70))["error_code"] == OFFSET_OUT_OF_RANGE
        assert await listed(client, EARLIEST) == (NONE, 80)
        assert (await fetched(client, 80))["log_start_offset"] == 80


@pytest.mark.parametrize(("client_id", "offset"), [("full", 20), ("window", 60), ("local", 120)])
async def test_a_timestamp_is_looked_up_in_what_is_shown(client_id: str, offset: int) -> None:
    async with world(limited(), history=RULES) as w:
        w.tier.timestamped = TimestampedOffset(offset=20, timestamp_ms=1_001, leader_epoch=3)
        assert await listed(await client_of(w, client_id), 1_000) == (NONE, offset)


async def epoch_end(client: RawClient, leader_epoch: int) -> tuple[int, int]:
    one = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
    request = {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [one]}]}
    answer = await client.call(OFFSET_FOR_LEADER_EPOCH, 4, request)
    [found] = answer["topics"][0]["partitions"]
    assert found["error_code"] == NONE
    return found["leader_epoch"], found["end_offset"]


@pytest.mark.parametrize(
    ("client_id", "ends"),
    [
        ("full", {3: (3, 40), 5: (5, 80), 6: (5, 80)}),
        ("window", {3: (3, 60), 5: (5, 80), 6: (5, 80)}),
        ("local", {3: (3, 100), 5: (5, 100), 6: (6, 100)}),
    ],
)
async def test_an_epoch_that_ended_before_ends_where_the_client_may_begin(
    client_id: str, ends: dict[int, tuple[int, int]]
) -> None:
    tier = limited()
    tier.epochs = epochs_from((3, 0), (5, 40), (7, 80), (9, 120))
    async with world(tier, history=RULES) as w:
        client = await client_of(w, client_id)
        assert {epoch: await epoch_end(client, epoch) for epoch in ends} == ends


@pytest.mark.parametrize("client_id", SEEN_FROM)
async def test_h22_produce_answers_show_the_same_log_start(client_id: str) -> None:
    async with world(limited(), history=RULES) as w:
        client = await client_of(w, client_id)
        assert (await fetched(client, 150))["error_code"] == NONE  # who it is was seen
        data = {"index": 0, "records": b"x"}
        request = {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": 1,
            "topic_data": [{"name": TOPIC, "partition_data": [data]}],
        }
        answer = await client.call(PRODUCE, 9, request)
        [found] = answer["responses"][0]["partition_responses"]
        assert found["log_start_offset"] == SEEN_FROM[client_id]


async def test_a_principal_is_limited_whatever_client_id_it_names() -> None:
    rules = HistoryRules(
        LOCAL,
        (
            HistoryRule(history=FULL, client_ids=".*"),
            HistoryRule(history=WINDOW, principals="alice"),
        ),
    )
    async with world(limited(), broker=SaslBroker().as_broker(), history=rules) as w:
        client = await client_of(w, "anything")
        assert await listed(client, EARLIEST) == (NONE, 0)  # nobody yet
        await log_in(client, "alice")
        assert await listed(client, EARLIEST) == (NONE, 60)
        assert (await fetched(client, 10))["error_code"] == OFFSET_OUT_OF_RANGE
        bob = await client_of(w, "anything")
        await log_in(bob, "bob")
        assert await listed(bob, EARLIEST) == (NONE, 0)


async def test_a_connection_that_names_another_client_id_is_shown_what_that_may_see() -> None:
    async with world(limited(), history=RULES) as w:
        client = await w.connect()
        for client.client_id, start in SEEN_FROM.items():
            assert await listed(client, EARLIEST) == (NONE, start)
            assert (await fetched(client, start))["log_start_offset"] == start


@pytest.mark.parametrize("view", [tier_partition(frozen=True), tier_partition(led_here=False)])
async def test_h04_a_window_changes_nothing_about_frozen_and_moved_partitions(
    view: TierPartition,
) -> None:
    async with world(FakeTier(partitions={0: view}), history=RULES) as w:
        full = await fetched(await client_of(w, "full"), 30)
        assert await fetched(await client_of(w, "window"), 30) == full
        assert full["error_code"] not in (NONE, OFFSET_OUT_OF_RANGE)
