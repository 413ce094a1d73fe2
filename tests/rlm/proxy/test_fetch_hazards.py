"""Fetch through the proxy when something is not as it should be: one test per hazard and rule."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from kafka_protocol.apis import FETCH
from kafka_protocol.error_codes import UNKNOWN_SERVER_ERROR
from kip405.errors import Busy, Corrupt, Fenced, NotFound, RemoteStorageError, Unavailable
from rlm.remote_log.tier import Watermarks
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeTier,
    Log,
    Value,
    World,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)

BIG = 1_000_000


@pytest.mark.parametrize("version", [4, 11, 14, 15, 18])
@pytest.mark.parametrize("replica_id", [1, -2])
async def test_h21_replica_fetches_pass_untouched(version: int, replica_id: int) -> None:
    async with world() as w:
        client = await w.connect()
        field: Value = {"replica_id": replica_id}
        if version >= 15:
            field = {"replica_state": {"replica_id": replica_id, "replica_epoch": 3}}
        session: Value = {"session_id": 5, "session_epoch": 7} if version >= 7 else {}
        request = fetch_request(version, asked(40), **field, **session)
        answer = only(await client.call(FETCH, version, request))
        assert answer["error_code"] == 1
        assert answer["log_start_offset"] == -1
        [seen] = w.broker.requests(FETCH)
        assert seen["topics"][0]["partitions"][0]["fetch_offset"] == 40
        assert seen["max_wait_ms"] == 200
        assert version < 7 or (seen["session_id"], seen["session_epoch"]) == (5, 7)
        assert w.tier.barriers == 0


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
async def test_unknown_session_is_refused_without_the_broker(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        request = fetch_request(version, asked(40), session_id=77, session_epoch=3)
        answer = await client.call(FETCH, version, request)
        assert (answer["error_code"], answer["session_id"], answer["responses"]) == (70, 0, [])
        assert w.broker.requests(FETCH) == []
        full = fetch_request(version, asked(150), session_id=77, session_epoch=0)
        assert only(await client.call(FETCH, version, full))["records"] == blob(150, 200)
        assert w.broker.requests(FETCH)[0]["session_id"] == 0


async def test_h17_not_ready_is_empty_with_the_real_high_watermark_within_max_wait() -> None:
    tier = FakeTier(partitions={0: tier_partition()}, is_ready=False)
    tier.barrier_error = Unavailable("replaying")
    tier.broker_watermarks = Watermarks(
        high_watermark=190, last_stable_offset=180, log_start_offset=100
    )
    async with world(tier) as w:
        client = await w.connect()
        began = time.monotonic()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert 0.15 < time.monotonic() - began < 30
        assert (answer["error_code"], answer["records"]) == (0, b"")
        assert (answer["high_watermark"], answer["last_stable_offset"]) == (190, 180)


@pytest.mark.usefixtures("short_first_moment")
@pytest.mark.parametrize("barrier_wait_ms", [0, 400])
async def test_h17_a_hanging_barrier_ends_with_max_wait_or_soon_after(barrier_wait_ms: int) -> None:
    async with world(barrier_wait_ms=barrier_wait_ms) as w:
        w.tier.hang = True
        w.tier.view_hidden = True
        client = await w.connect()
        began = time.monotonic()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert 0.15 < time.monotonic() - began < 30
        assert (answer["error_code"], answer["high_watermark"]) == (0, 200)


async def test_h17_without_watermarks_a_storage_error_is_answered() -> None:
    async with world() as w:
        w.tier.view_hidden = True
        w.tier.barrier_error = w.tier.watermarks_error = Unavailable("nothing answers")
        client = await w.connect()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert answer["error_code"] == 56


async def test_h17_plain_topics_pass_their_out_of_range_after_a_barrier() -> None:
    async with world() as w:
        client = await w.connect()
        request = fetch_request(12, asked(40), topic=PLAIN)
        assert only(await client.call(FETCH, 12, request))["error_code"] == 1
        assert w.tier.barriers == 1


@pytest.mark.parametrize("offset", [201, 5_000])
async def test_beyond_the_log_end_is_out_of_range(offset: int) -> None:
    async with world() as w:
        client = await w.connect()
        assert (
            only(await client.call(FETCH, 12, fetch_request(12, asked(offset))))["error_code"] == 1
        )


async def test_below_the_remote_log_start_is_out_of_range() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_log_start_offset=50)
        client = await w.connect()
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(40))))["error_code"] == 1
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(50))))
        assert (answer["records"], answer["log_start_offset"]) == (blob(50, 100), 50)


async def test_h04_a_frozen_partition_is_a_storage_error_never_out_of_range() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(frozen=True)
        client = await w.connect()
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(40))))["error_code"] == 56
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(150))))["error_code"] == 0
        assert w.tier.reads == []
        w.tier.barrier_error = Fenced("frozen meanwhile")
        await asyncio.sleep(0.21)
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(40))))["error_code"] == 56


async def test_h04_nothing_is_served_beyond_the_brokers_high_watermark() -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(50, 60, 60)
        watermarks = Watermarks(high_watermark=60, last_stable_offset=200, log_start_offset=50)
        w.tier.partitions[0] = tier_partition(watermarks=watermarks)
        client = await w.connect()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert answer["records"] == blob(40, 60)
        w.broker.logs[TOPIC, 0] = Log(50, 61, 55)
        request = fetch_request(12, asked(40), isolation_level=1)
        answer = only(await client.call(FETCH, 12, request))
        assert answer["records"] == blob(40, 55)
        assert max(read.upper_offset for read in w.tier.reads) <= 61


def patched(w: World) -> list[tuple[int, int]]:
    """(current leader epoch, offset) of partition 0 as the broker was asked."""
    rows = [request["topics"][0]["partitions"][0] for request in w.broker.requests(FETCH)]
    return [(row.get("current_leader_epoch", -1), row["fetch_offset"]) for row in rows]


@pytest.mark.parametrize("version", [4, 8, 11, 12])
async def test_h07_a_topic_recreated_is_not_answered_from_the_old_ones_data(version: int) -> None:
    """The view is a second old and of the deleted topic; the names are equal, and the offsets
    fit.
    """
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(start=0, high_watermark=300, last_stable=300, record_bytes=20)
        client = await w.connect()
        answer = only(await client.call(FETCH, version, fetch_request(version, asked(40))))
        assert answer["records"] == blob(40, 300, 20)
        assert answer["high_watermark"] == 300
        assert w.metrics.spliced_bytes == 0


@pytest.mark.parametrize("version", [9, 12, 18])
@pytest.mark.parametrize("epoch_now", [8, 10])
async def test_h04_the_broker_vouches_for_the_leadership_of_our_view(
    version: int, epoch_now: int
) -> None:
    """The client names no epoch and our view is of epoch 9: another lineage may have begun."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(leader_epoch=epoch_now)
        client = await w.connect()
        answer = only(await client.call(FETCH, version, fetch_request(version, asked(40))))
        assert (answer["error_code"], answer["records"]) == (0, blob(40, 100))
        assert patched(w) == [(9, 200), (-1, 40)]
        assert w.tier.barriers == 1


async def test_h04_a_client_of_another_leadership_than_our_view_takes_the_slow_way() -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(leader_epoch=10)
        client = await w.connect()
        request = fetch_request(12, asked(40, current_leader_epoch=10))
        answer = only(await client.call(FETCH, 12, request))
        assert (answer["error_code"], answer["records"]) == (0, blob(40, 100))
        assert (patched(w), w.tier.barriers) == ([(10, 40)], 1)
        request = fetch_request(12, asked(40, current_leader_epoch=9))
        assert only(await client.call(FETCH, 12, request))["error_code"] == 74


async def test_h15_no_gap_is_jumped_before_it_is_settled() -> None:
    """Offsets 60 to 99 are in no tier as far as the ledger knows, but it may still learn more."""
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_next_offset=60, unsettled_next_offset=80)
        client = await w.connect()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(70))))
        assert (answer["error_code"], answer["records"], answer["high_watermark"]) == (0, b"", 200)
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(80))))
        assert answer["records"] == blob(100, 200)
        w.tier.partitions[0] = tier_partition(remote_next_offset=0, unsettled_next_offset=80)
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(70))))
        assert (answer["error_code"], answer["records"]) == (0, b"")


@pytest.mark.parametrize("version", [11, 12, 18])
async def test_h15_a_rack_aware_client_gets_out_of_a_hole(version: int) -> None:
    """The leader would send it to a follower, which knows of no hole, and back, for ever."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(preferred=2, rack="a")
        w.tier.partitions[0] = tier_partition(remote_next_offset=60)
        client = await w.connect()
        answer = only(
            await client.call(FETCH, version, fetch_request(version, asked(70), rack_id="a"))
        )
        assert (answer["error_code"], answer["preferred_read_replica"]) == (0, -1)
        assert answer["records"] == blob(100, 200)


async def test_h09_read_committed_has_the_aborted_list_and_uncommitted_null() -> None:
    async with world() as w:
        w.tier.aborted = ((7, 41), (8, 50))
        client = await w.connect()
        for version in (4, 11, 12, 18):
            request = fetch_request(version, asked(40), isolation_level=1)
            aborted = only(await client.call(FETCH, version, request))["aborted_transactions"]
            assert [(a["producer_id"], a["first_offset"]) for a in aborted] == [(7, 41), (8, 50)]
            request = fetch_request(version, asked(40))
            answer = only(await client.call(FETCH, version, request))
            assert answer["aborted_transactions"] is None


@pytest.mark.parametrize("error", [Corrupt("bad crc"), NotFound("gone")])
async def test_h25_permanent_loss_is_an_error_that_clients_log_once_per_max_wait(
    error: RemoteStorageError,
) -> None:
    async with world() as w:
        w.tier.error = error
        client = await w.connect()
        began, codes = time.monotonic(), []
        for _ in range(3):
            answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
            codes.append(answer["error_code"])
            assert answer["high_watermark"] == 200
        assert set(codes) == {UNKNOWN_SERVER_ERROR}
        assert time.monotonic() - began >= 0.55


@pytest.mark.parametrize("error", [Unavailable("store away"), Busy("queue full")])
async def test_h25_transient_trouble_is_empty_without_error(error: RemoteStorageError) -> None:
    async with world() as w:
        w.tier.error = error
        client = await w.connect()
        began = time.monotonic()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert (answer["error_code"], answer["records"], answer["high_watermark"]) == (0, b"", 200)
        assert time.monotonic() - began > 0.15


async def test_h15_a_hole_is_answered_like_a_compaction_gap() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_next_offset=60)
        client = await w.connect()
        for offset in (60, 75, 99):
            answer = only(await client.call(FETCH, 12, fetch_request(12, asked(offset))))
            assert (answer["error_code"], answer["records"]) == (0, blob(100, 200))
            assert answer["log_start_offset"] == 0


@pytest.mark.parametrize("code", [3, 6, 29, 74, 75])
async def test_errors_of_the_broker_pass_for_known_remote_partitions(code: int) -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=code)
        client = await w.connect()
        answer = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
        assert (answer["error_code"], answer["records"]) == (code, b"")
        assert w.metrics.spliced_bytes == 0


async def test_out_of_range_of_a_follower_sends_the_client_to_the_leader() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(led_here=False)
        client = await w.connect()
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(40))))["error_code"] == 6
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(150))))["error_code"] == 0


@pytest.mark.parametrize("known", [True, False])
async def test_preferred_read_replica_is_not_given_for_remote_offsets(known: bool) -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(preferred=2)
        if not known:  # the broker is then asked at the client's own offset
            w.tier.partitions[0] = tier_partition(watermarks=None)
        client = await w.connect()
        request = fetch_request(12, asked(40), rack_id="a")
        answer = only(await client.call(FETCH, 12, request))
        assert (answer["preferred_read_replica"], answer["records"]) == (-1, blob(40, 100))
        local = only(await client.call(FETCH, 12, fetch_request(12, asked(150), rack_id="a")))
        assert local["preferred_read_replica"] == 2


@pytest.mark.parametrize("code", [0, 76])
@pytest.mark.parametrize("version", [4, 9, 10, 12])
async def test_old_clients_are_refused_only_what_the_broker_refuses_them(
    version: int, code: int
) -> None:
    """A broker below 4.0 goes by the topic's compression.type, whatever is in the batches."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=code)
        client = await w.connect()
        answer = only(await client.call(FETCH, version, fetch_request(version, asked(40))))
        assert answer["error_code"] == code
        assert bool(answer["records"]) == (code == 0)


async def test_max_bytes_holds_over_both_tiers() -> None:
    tier = FakeTier(partitions={n: tier_partition(partition=n) for n in range(3)})
    async with world(tier) as w:
        client = await w.connect()
        request = fetch_request(
            12,
            asked(40, 0, max_bytes=300),
            asked(150, 1, max_bytes=300),
            asked(0, 2, max_bytes=300),
            max_bytes=500,
        )
        answer = await client.call(FETCH, 12, request)
        sizes = [len(p["records"]) for p in answer["responses"][0]["partitions"]]
        assert sizes[0] == 300
        assert sum(sizes) <= 500
        assert sizes[1] == 200


async def test_kip_74_the_first_batch_is_given_even_when_too_large() -> None:
    tier = FakeTier(partitions={n: tier_partition(partition=n) for n in range(2)})
    async with world(tier) as w:
        client = await w.connect()
        request = fetch_request(12, asked(40, 0, BIG), asked(0, 1, BIG), max_bytes=3)
        answer = await client.call(FETCH, 12, request)
        records = [p["records"] for p in answer["responses"][0]["partitions"]]
        assert records == [blob(40, 41), b""]


async def test_a_bug_in_the_tier_does_not_close_the_connection() -> None:
    class Broken(FakeTier):
        async def read(self, request: object) -> object:  # type: ignore[override]
            raise ZeroDivisionError

    async with world(Broken(partitions={0: tier_partition()})) as w:
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=3_000)
        with capture_logs():  # to print the traceback takes long
            answer = only(await client.call(FETCH, 12, request))
        assert answer["error_code"] == UNKNOWN_SERVER_ERROR
        assert only(await client.call(FETCH, 12, fetch_request(12, asked(150))))["error_code"] == 0


async def test_a_throttled_answer_without_topics_passes() -> None:
    async with world() as w:
        w.broker.script[FETCH.key] = lambda version, value: {"throttle_time_ms": 50}
        client = await w.connect()
        answer = await client.call(FETCH, 12, fetch_request(12, asked(40)))
        assert (answer["throttle_time_ms"], answer["responses"]) == (50, [])
