"""Pure decisions of a Fetch, as tables."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch import FetchedPartition, FetchPartition, FetchResponse, scan_fetch_request
from kafka_protocol.fetch.response import FetchedTopic
from kafka_protocol.frames import encode_request, parse_request_header
from kip405.ids import Uuid
from rlm.proxy.fetch_plan import PartitionFetch, Source, plan_fetch, topic_ref
from rlm.proxy.splice import (
    check_answer,
    settle_gap,
    settle_out_of_range,
    shown_log_start,
    splice_records,
)
from rlm.reading.values import RemoteRecords
from rlm.remote_log.tier import TierPartition, TopicRef, Watermarks, has_remote, upper_offset
from tests.rlm.proxy.fakes import TOPIC, TOPIC_ID, asked, fetch_request, tier_partition

OPEN_GAP = tier_partition(remote_next_offset=60, unsettled_next_offset=80)


def no_epochs(_: Uuid, __: int, ___: int) -> None:
    """A tier that has no merged lineage."""


WATERMARKS = Watermarks(high_watermark=200, last_stable_offset=150, log_start_offset=100)
TRIMMED_MORE = replace(WATERMARKS, log_start_offset=120)


def partition_fetch(offset: int, fetched_epoch: int = -1) -> PartitionFetch:
    return PartitionFetch(
        key=(TOPIC, 0),
        ref=TopicRef(name=TOPIC),
        asked=FetchPartition(0, -1, offset, fetched_epoch, 1_000, 0),
        tiered=None,
        maybe_tiered=False,
    )


@pytest.mark.parametrize(
    ("view", "offset", "watermarks", "source", "error_code", "again"),
    [
        (None, 40, WATERMARKS, Source.BROKER, 0, False),
        (tier_partition(), 40, WATERMARKS, Source.REMOTE, 0, False),
        (tier_partition(), 0, WATERMARKS, Source.REMOTE, 0, False),
        (tier_partition(), 40, None, Source.REFUSED, 56, False),
        (tier_partition(frozen=True), 40, WATERMARKS, Source.REFUSED, 56, False),
        (tier_partition(frozen=True), 40, None, Source.REFUSED, 56, False),
        (tier_partition(led_here=False), 40, WATERMARKS, Source.REFUSED, 6, False),
        (tier_partition(remote_log_start_offset=41), 40, WATERMARKS, Source.BROKER, 0, False),
        (tier_partition(remote_next_offset=0), 40, WATERMARKS, Source.BROKER, 0, False),
        (tier_partition(remote_next_offset=60), 60, WATERMARKS, Source.HOLE, 0, True),
        (tier_partition(remote_next_offset=60), 99, WATERMARKS, Source.HOLE, 0, True),
        (tier_partition(remote_next_offset=60), 100, WATERMARKS, Source.NOT_READY, 0, False),
        (tier_partition(remote_next_offset=60), 99, TRIMMED_MORE, Source.HOLE, 0, True),
        (tier_partition(remote_next_offset=60), 100, TRIMMED_MORE, Source.NOT_READY, 0, False),
        (OPEN_GAP, 79, WATERMARKS, Source.NOT_READY, 0, False),
        (OPEN_GAP, 80, WATERMARKS, Source.HOLE, 0, True),
        (OPEN_GAP, 59, WATERMARKS, Source.REMOTE, 0, False),
        (OPEN_GAP, 79, None, Source.REFUSED, 56, False),
        (tier_partition(), 200, WATERMARKS, Source.NOT_READY, 0, False),
        (tier_partition(), 201, WATERMARKS, Source.BROKER, 0, False),
        (tier_partition(), 201, None, Source.REFUSED, 56, False),
    ],
)
def test_h17_out_of_range_verdicts(
    view: TierPartition | None,
    offset: int,
    watermarks: Watermarks | None,
    source: Source,
    error_code: int,
    again: bool,
) -> None:
    one = partition_fetch(offset)
    assert settle_out_of_range(one, view, watermarks) is again
    assert (one.source, one.error_code) == (source, error_code)
    assert (
        one.ask_offset
        == {
            Source.HOLE: 100,
            Source.REMOTE: 200,
            Source.NOT_READY: 200,
            Source.BROKER: None,
            Source.REFUSED: None if watermarks is None or error_code == 6 else 200,
        }[source]
    )


TRIMMED_LESS = replace(WATERMARKS, log_start_offset=95)


@pytest.mark.parametrize(
    ("view", "watermarks", "source", "ask_offset"),
    [
        (tier_partition(), WATERMARKS, Source.HOLE, 100),
        (tier_partition(), TRIMMED_MORE, Source.HOLE, 120),
        (tier_partition(), TRIMMED_LESS, Source.HOLE, 95),
        (tier_partition(), replace(WATERMARKS, log_start_offset=80), Source.HOLE, 90),
        (tier_partition(unsettled_next_offset=90), WATERMARKS, Source.HOLE, 100),
        (tier_partition(unsettled_next_offset=91), WATERMARKS, Source.NOT_READY, 200),
        (tier_partition(remote_next_offset=150), WATERMARKS, Source.NOT_READY, 200),
        (tier_partition(remote_next_offset=95), WATERMARKS, Source.NOT_READY, 200),
        (tier_partition(leader_epoch=10), WATERMARKS, Source.NOT_READY, 200),
        (tier_partition(frozen=True), WATERMARKS, Source.REFUSED, 200),
        (tier_partition(remote_next_offset=90), WATERMARKS, Source.BROKER, None),
        (tier_partition(remote_log_start_offset=91), WATERMARKS, Source.BROKER, None),
        (tier_partition(led_here=False), WATERMARKS, Source.BROKER, None),
        (tier_partition(topic_id=Uuid(b"another-topic-id")), WATERMARKS, Source.BROKER, None),
        (None, WATERMARKS, Source.BROKER, None),
        (tier_partition(), None, Source.BROKER, None),
    ],
)
def test_h15_what_is_behind_a_read_that_found_nothing_up_to_the_remote_end(
    view: TierPartition | None,
    watermarks: Watermarks | None,
    source: Source,
    ask_offset: int | None,
) -> None:
    """It was read from offset 90 to 100."""
    one = partition_fetch(90)
    one.source, one.watermarks, one.ask_offset = Source.REMOTE, watermarks, 200
    settle_gap(one, view, tier_partition())
    assert (one.source, one.ask_offset) == (source, ask_offset)


@pytest.mark.parametrize(
    ("changes", "offset", "known", "assumed_at"),
    [
        ({}, 40, {}, 200),
        ({}, 40, {(TOPIC, 0): 230}, 230),
        ({}, 40, {(TOPIC, 0): 90}, 200),
        ({}, 100, {}, None),
        ({}, 99, {}, 200),
        ({"frozen": True}, 40, {}, None),
        ({"led_here": False}, 40, {}, None),
        ({"watermarks": replace(WATERMARKS, high_watermark=-1)}, 40, {}, None),
        ({"watermarks": replace(WATERMARKS, high_watermark=-1)}, 40, {(TOPIC, 0): 210}, 210),
        ({"watermarks": None}, 40, {}, None),
        ({"watermarks": replace(WATERMARKS, log_start_offset=30)}, 40, {}, None),
        ({"remote_log_start_offset": 50}, 40, {}, None),
        ({"remote_next_offset": 0}, 40, {}, None),
    ],
)
def test_h20_what_is_assumed_to_be_remote(
    changes: dict[str, Any], offset: int, known: dict[Any, int], assumed_at: int | None
) -> None:
    value = fetch_request(12, asked(offset))
    frame = encode_request(FETCH, 12, 1, "client", value)[4:]
    request = scan_fetch_request(frame, parse_request_header(frame))
    view = tier_partition(**changes)
    plan = plan_fetch(request, lambda _, __: view, no_epochs, ready=True, high_watermarks=known)
    [one] = plan.partitions
    assert one.ask_offset == assumed_at
    assert plan.replacements() == ({} if assumed_at is None else {one.asked: (assumed_at, 1)})
    assert not plan.is_plain


@pytest.mark.parametrize(("ready", "plain"), [(True, True), (False, False)])
def test_h17_before_the_tier_is_ready_every_topic_may_be_tiered(ready: bool, plain: bool) -> None:
    frame = encode_request(FETCH, 12, 1, "client", fetch_request(12, asked(5)))[4:]
    request = scan_fetch_request(frame, parse_request_header(frame))
    plan = plan_fetch(request, lambda _, __: None, no_epochs, ready=ready, high_watermarks={})
    assert plan.is_plain is plain


def test_h04_upper_offset_is_the_least_of_all() -> None:
    view = tier_partition(remote_next_offset=180)
    assert upper_offset(view, WATERMARKS, read_committed=True) == 150
    assert upper_offset(view, WATERMARKS, read_committed=False) == 180
    unknown_lso = Watermarks(high_watermark=170, last_stable_offset=-1, log_start_offset=0)
    assert upper_offset(view, unknown_lso, read_committed=True) == 170


@pytest.mark.parametrize(
    ("changes", "answered", "shown"),
    [
        ({}, 100, 0),
        ({}, -1, None),
        ({}, 0, None),
        ({"remote_next_offset": 0}, 100, None),
        ({"remote_log_start_offset": -1}, 100, None),
    ],
)
def test_h22_shown_log_start(changes: dict[str, Any], answered: int, shown: int | None) -> None:
    assert shown_log_start(tier_partition(**changes), answered) == shown
    assert shown_log_start(None, answered) is None


def test_topics_are_named_as_the_client_named_them() -> None:
    assert topic_ref("a", None) == TopicRef(name="a")
    assert topic_ref(None, TOPIC_ID.raw) == TopicRef(topic_id=TOPIC_ID)
    assert not has_remote(tier_partition(remote_log_start_offset=100))
    assert isinstance(topic_ref(None, TOPIC_ID.raw).topic_id, Uuid)


def test_h36_names_that_no_topic_can_have_are_not_kept() -> None:
    """A request of a stranger may be one such name, and there may be any number of strangers."""
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            ref = topic_ref(f"{number:100000}", None)
            assert ref == TopicRef(name=f"{number:100000}")
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_bytes - before_bytes < 1_000_000
    assert topic_ref("a" * 249, None) is topic_ref("a" * 249, None), "a name that a topic can have"


def test_h25_no_record_goes_out_beside_an_error() -> None:
    records = RemoteRecords(records=(b"x",), size_bytes=1, next_offset=41, aborted=((1, 2),))
    one = partition_fetch(40)
    assert splice_records(one, records, 0, read_committed=True).records == (b"x",)
    refused = splice_records(one, records, 56, read_committed=True)
    assert (refused.error_code, refused.records) == (56, ())


@pytest.mark.parametrize(
    ("error_code", "leaves", "out_of_range"), [(0, False, 0), (1, False, 1), (6, True, 0)]
)
def test_g8_an_error_of_the_broker_leaves_at_once_and_out_of_range_is_looked_into(
    error_code: int, leaves: bool, out_of_range: int
) -> None:
    frame = encode_request(FETCH, 12, 1, "client", fetch_request(12, asked(150)))[4:]
    request = scan_fetch_request(frame, parse_request_header(frame))
    view = tier_partition()
    plan = plan_fetch(request, lambda _, __: view, no_epochs, ready=True, high_watermarks={})
    answered = FetchedPartition(0, error_code, 200, 150, 100, -1, 0, 0, 0, 0, 0, 0, 0, None)
    response = FetchResponse(
        api_version=12,
        correlation_id=1,
        throttle_time_ms=0,
        throttle_time_ms_position=0,
        error_code=0,
        session_id=0,
        topics=(FetchedTopic(TOPIC, None, (answered,)),),
        tags_position=0,
    )
    checked = check_answer(plan, response, {})
    assert (checked.leave_now, len(checked.out_of_range)) == (leaves, out_of_range)
