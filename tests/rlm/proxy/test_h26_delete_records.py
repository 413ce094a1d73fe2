"""DeleteRecords through the proxy: the broker first, then the remote log start, then the answer.

[0, 100) is remote, the broker's log is [100, 200).
"""

import asyncio

import pytest

from kafka_protocol.api_versions import READ_APIS
from kafka_protocol.apis import DELETE_RECORDS
from kip405.errors import Fenced, Unavailable
from rlm.broker.own_broker import deletion_client_id
from rlm.remote_log.tier import Watermarks
from tests.rlm.proxy.fakes import PLAIN, TOPIC, FakeTier, Log, Value, World, tier_partition, world
from tests.rlm.proxy.raw_client import RawClient

EPOCH = 9
HIGH_WATERMARK = -1
VERSIONS = range(DELETE_RECORDS.versions.low, DELETE_RECORDS.versions.high + 1)
BELOW_EVERY_LOG = 0
Row = tuple[int, int]
"""Error code and low watermark."""


def request_of(*rows: tuple[str, int]) -> Value:
    """Partition 0 of each topic, and the offset."""
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}
        for name, offset in rows
    ]
    return {"topics": topics, "timeout_ms": 1_000}


def rows_of(answer: Value) -> list[tuple[str, int, int]]:
    return [
        (topic["name"], row["error_code"], row["low_watermark"])
        for topic in answer["topics"]
        for row in topic["partitions"]
    ]


async def ask(client: RawClient, offset: int, version: int = 2, topic: str = TOPIC) -> Row:
    answer = await client.call(DELETE_RECORDS, version, request_of((topic, offset)))
    [(_, error_code, low_watermark)] = rows_of(answer)
    return error_code, low_watermark


async def delete(w: World, offset: int, version: int = 2, topic: str = TOPIC) -> Row:
    return await ask(await w.connect(), offset, version, topic)


def forwarded(w: World) -> list[int]:
    """The offsets that the broker was asked for, after the question whether the client may."""
    return [
        row["offset"]
        for request in w.broker.requests(DELETE_RECORDS)
        if not is_question(request)
        for topic in request["topics"]
        for row in topic["partitions"]
    ]


def is_question(request: Value) -> bool:
    """Whether it asks only who may delete."""
    rows = [row["offset"] for topic in request["topics"] for row in topic["partitions"]]
    return bool(rows) and set(rows) == {BELOW_EVERY_LOG} and request["timeout_ms"] == 0


def assert_nothing_deleted(w: World) -> None:
    assert w.deletions.raised == []
    assert {log.start for log in w.broker.logs.values()} == {Log().start}


def test_h26_no_version_is_offered_that_is_not_read() -> None:
    assert READ_APIS[DELETE_RECORDS.key] == DELETE_RECORDS.versions


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("asked", "sent", "log_start"),
    [(50, 50, 100), (100, 100, 100), (150, 150, 150), (HIGH_WATERMARK, 200, 200)],
    ids=["remote", "border", "local", "all"],
)
async def test_h26_both_tiers_begin_where_the_client_asked(
    asked: int, sent: int, log_start: int, version: int
) -> None:
    """Also where the broker has nothing to delete, and answers with a higher low watermark."""
    async with world() as w:
        assert await delete(w, asked, version) == (0, sent)
        assert forwarded(w) == [sent]
        assert w.deletions.raised == [(EPOCH, sent)]
        assert w.broker.logs[TOPIC, 0].start == log_start
        assert ("delete_records", "remote") in w.metrics.outcomes


async def test_h26_the_low_watermark_is_the_remote_log_start_that_holds() -> None:
    async with world() as w:
        w.deletions.start = 70
        assert await delete(w, 50) == (0, 70)
        assert await delete(w, 80) == (0, 80)


async def test_h26_the_high_watermark_is_ours_not_a_low_watermark_that_a_trim_has_raised() -> None:
    """A trim moves the log start while the broker waits for followers."""
    async with world() as w:

        def raised_by_a_trim(version: int, request: Value) -> Value:
            row = {"partition_index": 0, "low_watermark": 190, "error_code": 0}
            return {"topics": [{"name": TOPIC, "partitions": [row]}]}

        w.broker.script[DELETE_RECORDS.key] = raised_by_a_trim
        w.tier.broker_watermarks = Watermarks(
            high_watermark=160, last_stable_offset=160, log_start_offset=100
        )
        assert await delete(w, HIGH_WATERMARK) == (0, 160)
        assert (forwarded(w), w.deletions.raised) == ([160], [(EPOCH, 160)])


@pytest.mark.parametrize("error_code", [1, 3, 6, 7, 29, 44, 56])
async def test_h26_after_an_error_of_the_broker_nothing_moves(error_code: int) -> None:
    """Also not after 7, by which the leader may have moved: the client repeats it."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=error_code)
        assert await delete(w, 50) == (error_code, -1)
        is_perhaps_done = error_code == 7  # then the client may delete, and followers lag
        assert (forwarded(w), w.deletions.raised) == ([50] if is_perhaps_done else [], [])


async def test_h26_an_offset_above_the_high_watermark_is_refused_by_the_broker() -> None:
    async with world() as w:
        assert await delete(w, 201) == (1, -1)
        assert w.deletions.raised == []


async def test_h26_a_high_watermark_of_an_earlier_leadership_is_asked_for_again() -> None:
    """The client asked for no offset, so none of its own can be out of range."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(high_watermark=150)
        assert await delete(w, HIGH_WATERMARK) == (5, -1)
        assert w.deletions.raised == []


@pytest.mark.usefixtures("short_first_moment")
async def test_h26_without_a_high_watermark_nothing_is_deleted() -> None:
    async with world() as w:
        w.tier.watermarks_error = Unavailable("no answer")
        assert await delete(w, HIGH_WATERMARK) == (5, -1)
        assert forwarded(w) == []
        assert_nothing_deleted(w)


@pytest.mark.parametrize("error", [Unavailable("not written"), Fenced("led elsewhere")])
async def test_h26_a_start_that_did_not_move_is_no_success(error: Unavailable | Fenced) -> None:
    async with world() as w:
        w.deletions.error = error
        assert await delete(w, 50) == (7, -1)
        w.deletions.error = None
        assert await delete(w, 50) == (0, 50)
        assert forwarded(w) == [50, 50]


async def test_h26_no_answer_before_the_start_was_read_back() -> None:
    async with world(barrier_wait_ms=60_000) as w:
        w.deletions.gate.clear()
        client = await w.connect()
        answer = asyncio.create_task(ask(client, 50))
        await w.deletions.began.wait()
        assert (answer.done(), w.deletions.raised) == (False, [])
        w.deletions.gate.set()
        assert await answer == (0, 50)
        assert w.deletions.raised == [(EPOCH, 50)]


async def test_h26_a_start_that_is_not_read_back_in_time_is_no_success() -> None:
    async with world(barrier_wait_ms=50) as w:
        w.deletions.gate.clear()
        assert await delete(w, 50) == (7, -1)


async def test_h26_a_frozen_topic_is_refused_and_the_broker_deletes_nothing() -> None:
    async with world() as w:
        w.deletions.stopped = "the topic is frozen by ops: audit"
        assert await delete(w, 50) == (44, -1)
        w.deletions.stopped = None
        w.tier.partitions[0] = tier_partition(frozen=True)
        assert await delete(w, 50) == (44, -1)
        assert forwarded(w) == []
        assert_nothing_deleted(w)
        assert w.metrics.outcomes == [("delete_records", "refused")] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_g8_who_may_not_delete_does_not_learn_what_stops_deletions(version: int) -> None:
    """It gets the broker's error, as for a topic that is not frozen."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=29)
        w.deletions.stopped = "the topic is frozen by ops: audit"
        assert await delete(w, 50, version) == (29, -1)
        w.deletions.stopped = None
        w.tier.partitions[0] = tier_partition(remote_log_start_offset=-1)
        assert await delete(w, 50, version) == (29, -1)
        w.tier.barrier_error = Unavailable("replaying")
        assert await delete(w, HIGH_WATERMARK, version) == (29, -1)
        assert_nothing_deleted(w)


async def test_h26_a_refusal_is_one_although_the_followers_of_the_broker_lag() -> None:
    """REQUEST_TIMED_OUT says "perhaps done", and a client would repeat it without end."""
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(error_code=7)
        w.deletions.stopped = "the topic is frozen by ops: audit"
        assert await delete(w, 50) == (44, -1)
        w.deletions.stopped = None
        assert await delete(w, 50) == (7, -1)
        assert forwarded(w) == [50]
        assert_nothing_deleted(w)


async def test_h02_without_a_remote_log_start_nothing_is_deleted_yet() -> None:
    """The start may be about to be written, as the log start of before the deletion."""
    async with world() as w:
        w.tier.partitions[0] = tier_partition(remote_log_start_offset=-1)
        assert await delete(w, 150) == (5, -1)
        assert forwarded(w) == []
        assert_nothing_deleted(w)


async def test_h26_a_partition_that_is_led_elsewhere_is_the_brokers_to_refuse() -> None:
    async with world() as w:
        w.tier.partitions[0] = tier_partition(led_here=False)
        w.broker.logs[TOPIC, 0] = Log(error_code=6)
        assert await delete(w, 50) == (6, -1)
        assert await delete(w, HIGH_WATERMARK) == (6, -1)
        assert forwarded(w) == []
        w.broker.logs[TOPIC, 0] = Log()  # the leadership came here meanwhile
        assert await delete(w, 50) == (7, -1)
        assert w.deletions.raised == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_h26_one_request_for_many_partitions_is_answered_in_its_order(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        w.deletions.stopped = "frozen"
        answer = await client.call(DELETE_RECORDS, version, request_of((TOPIC, 50), (PLAIN, 150)))
        assert rows_of(answer) == [(TOPIC, 44, -1), (PLAIN, 0, 150)]
        w.deletions.stopped = None
        answer = await client.call(DELETE_RECORDS, version, request_of((PLAIN, 160), (TOPIC, 60)))
        assert rows_of(answer) == [(PLAIN, 0, 160), (TOPIC, 0, 60)]
        assert forwarded(w) == [150, 160, 60]
        assert w.deletions.raised == [(EPOCH, 60)]
        assert rows_of(await client.call(DELETE_RECORDS, version, request_of())) == []


async def test_h26_of_a_partition_asked_for_twice_the_last_counts_in_both_tiers() -> None:
    async with world() as w:
        client = await w.connect()
        answer = await client.call(DELETE_RECORDS, 2, request_of((TOPIC, 150), (TOPIC, 120)))
        assert rows_of(answer) == [(TOPIC, 0, 120)]
        assert (forwarded(w), w.deletions.raised) == ([120], [(EPOCH, 120)])


async def test_h26_a_topic_that_is_not_tiered_is_the_brokers_alone() -> None:
    async with world() as w:
        assert await delete(w, 50, topic=PLAIN) == (0, 100)
        assert await delete(w, HIGH_WATERMARK, topic=PLAIN) == (0, 200)
        assert (forwarded(w), w.deletions.raised) == ([50, HIGH_WATERMARK], [])


async def test_h17_a_topic_that_is_enabled_meanwhile_is_asked_for_again() -> None:
    """Its remote log start may be the log start of before the deletion."""
    async with world(FakeTier()) as w:

        def enabled_meanwhile(version: int, request: Value) -> Value:
            if not is_question(request):
                w.tier.partitions[0] = tier_partition()
            return w.broker.delete(request)

        w.broker.script[DELETE_RECORDS.key] = enabled_meanwhile
        assert await delete(w, 150) == (7, -1)
        assert await delete(w, 150) == (0, 150)
        assert w.deletions.raised == [(EPOCH, 150)]


async def test_h17_nothing_is_deleted_while_nothing_is_known() -> None:
    tier = FakeTier(is_ready=False, barrier_error=Unavailable("replaying"))
    async with world(tier) as w:
        assert await delete(w, 150, topic=PLAIN) == (5, -1)
        assert forwarded(w) == []
        assert_nothing_deleted(w)


@pytest.mark.parametrize(
    ("client_id", "is_trim"),
    [("rlm-1", True), ("rlm-42", True), ("rlm", False), ("rlm-cli", False), ("my-rlm-1", False)],
)
async def test_h01_a_trim_that_was_sent_to_a_proxy_is_no_request_of_a_user(
    client_id: str, is_trim: bool
) -> None:
    async with world() as w:
        client = await w.connect()
        client.client_id = deletion_client_id(client_id)
        assert await ask(client, 50) == ((44, -1) if is_trim else (0, 50))
        assert forwarded(w) == ([] if is_trim else [50])
