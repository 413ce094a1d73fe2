"""REMOTE_ONLY over real segments: reads, positions, plans by ledger, settings and store alone."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kip405.errors import (
    Fenced,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
)
from kip405.ids import PartitionKey, Uuid
from rlm.plans.coverage import NO_RECORDS
from rlm.remote_log.reads import ReadRequest
from rlm.remote_log.remote_only import QUIET_MS
from rlm.topics.leftovers import kept_record
from rlm.v1 import fetch_pb2 as pb
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord, ReaderRecord, ServiceRecord, TopicRecord
from tests.builders.ledger import PARTITION
from tests.rlm.api.remote_site import REF, WHO, Site, fetch, missing, offsets, positions
from tests.rlm.cli.invoking import assert_one_line, rlm


async def test_the_whole_remote_tier_byte_for_byte_and_no_more(site: Site) -> None:
    answers = await site.read(0)
    got = b"".join(one.batches for one in answers)
    assert site.rig.broker.log.startswith(got)
    assert offsets(answers) == list(range(0, 400, 10))
    assert answers[-1].next_offset == 400
    assert missing(answers) == []
    last = answers[-1]
    assert (last.high_watermark, last.last_stable_offset, last.log_start_offset) == (400, 400, 0)
    assert {one.tier for one in answers} == {pb.REMOTE}
    assert len(answers) > 3


async def test_the_command_prints_what_a_reader_has(site: Site) -> None:
    asked = ("fetch", PARTITION.topic, "-p", str(PARTITION.partition), "--address", site.address)
    both = await rlm(*asked, "-o", "earliest")
    assert_one_line(both, "this is a reader", "--remote-only", status=1)
    found = await rlm(*asked, "-o", "earliest", "-n", "0", "--remote-only")
    rows = [line.split("\t")[:2] for line in found.stdout.splitlines()]
    assert rows == [["remote", str(offset)] for offset in range(400)]
    after_all = await rlm(*asked, "-o", "latest", "--remote-only")
    assert (after_all.exit_code, after_all.stdout) == (0, "")


async def test_it_ends_at_the_end_asked_for_and_says_nothing_beyond_the_remote_end(
    site: Site,
) -> None:
    assert offsets(await site.read(95, end_offset=120)) == [90, 100, 110]
    assert await site.read(400) == []
    assert await site.read(500) == []
    assert await site.read(410, end_offset=420) == []
    by_id = await site.read(390, topic=pb.TopicRef(topic_id=PARTITION.topic_id.raw))
    assert offsets(by_id) == [390]


class _Caller:
    """As much of a gRPC context as a call that goes well asks for."""

    def invocation_metadata(self) -> Any:
        return WHO

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"


async def test_a_stream_that_waits_for_its_reader_holds_no_chunks(site: Site) -> None:
    """What it held others would wait for, and the reader may never come back."""
    stream = aiter(site.service.Fetch(fetch(0), _Caller()))  # type: ignore[arg-type]
    first = pb.FetchResponse.FromString(await anext(stream))
    assert offsets([first])[0] == 0
    assert first.next_offset < 400
    assert site.reader.chunks.kept_bytes > 0
    async with asyncio.timeout(60):  # what reads ahead lands, and is let go, in its own time
        while site.reader.chunks.pinned_bytes():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def test_the_broker_is_asked_nothing(site: Site) -> None:
    """Gone altogether: not even its attributes are there."""
    del site.rig.broker
    assert offsets(await site.read(0)) == list(range(0, 400, 10))
    assert (await site.ask("ListOffsets", positions(-1))).offset == 400


async def test_h15_missing_offsets_are_reported_at_the_start_in_the_middle_and_at_the_end(
    site: Site,
) -> None:
    site.delete(100)
    over = await site.read(80)
    assert offsets(over) == [80, 90, *range(250, 400, 10)]
    assert missing(over) == [(100, 250)]
    inside = await site.read(130, end_offset=200)
    assert (offsets(inside), missing(inside)) == ([], [(130, 200)])
    assert inside[-1].next_offset == 200
    behind = await site.read(130, end_offset=270)
    assert (offsets(behind), missing(behind)) == ([250, 260], [(130, 250)])


async def test_h15_where_no_records_were_nothing_is_missing(site: Site) -> None:
    site.delete(100)
    empty = Hole(start=100, end=200, cause=NO_RECORDS)
    lost = Hole(start=200, end=210, cause="accepted")
    site.rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(empty, lost)), epoch=0)
    over = await site.read(80)
    assert offsets(over) == [80, 90, *range(250, 400, 10)]
    assert missing(over) == [(200, 250)]
    inside = await site.read(130, end_offset=200)
    assert (offsets(inside), missing(inside)) == ([], [])
    assert inside[-1].next_offset == 200


async def test_h15_what_is_not_settled_is_not_called_missing(site: Site) -> None:
    _, second, third = site.segments()
    site.begin_delete(second)
    with pytest.raises(Unavailable, match="not settled"):
        await site.read(100)
    assert offsets(await site.read(90, end_offset=100)) == [90]
    site.begin_delete(third)
    assert offsets(await site.read(0)) == list(range(0, 100, 10))
    with pytest.raises(Unavailable, match="not settled"):
        await site.read(300, end_offset=310)


async def test_a_ledger_that_may_be_incomplete_proves_no_hole(site: Site) -> None:
    site.delete(100)
    site.rig.ledger.damage = "topic was recreated"
    with pytest.raises(Unavailable, match="not settled"):
        await site.read(100)
    site.rig.ledger.damage, site.rig.ledger.problem = None, "nobody can be asked now"
    assert missing(await site.read(100)) == [(100, 250)]


async def test_h02_below_the_remote_log_start_there_is_nothing(site: Site) -> None:
    site.rig.remote_start(120)
    with pytest.raises(OffsetOutOfRange, match="log_start_offset=120") as caught:
        await site.read(119)
    assert caught.value.log_start_offset == 120
    assert offsets(await site.read(120)) == list(range(120, 400, 10))
    assert (await site.ask("ListOffsets", positions(-2))).offset == 120


async def test_h02_without_a_remote_log_start_nobody_reads_what_may_have_ended(
    site: Site,
) -> None:
    """The settings have lost it, as where `rlm ledger rebuild` has just added the segments."""
    site.rig.settings.remove(f"start/{PARTITION.key}")
    with pytest.raises(Unavailable, match="has no remote log start"):
        await site.read(0)
    site.rig.remote_start(0)
    assert offsets(await site.read(300))


async def test_h02_a_start_that_moves_up_ends_the_stream_that_is_below_it(site: Site) -> None:
    pieces = site.reading.stream(REF, 0, _wanted(0))
    assert (await anext(pieces)).next_offset < 200
    site.rig.remote_start(200)
    with pytest.raises(Invalid, match="log_start_offset=200"):
        await anext(pieces)
    above = site.reading.stream(REF, 0, _wanted(300))
    first = await anext(above)
    site.rig.remote_start(first.next_offset)
    assert [piece.next_offset async for piece in above][-1] == 400


def _wanted(start_offset: int) -> ReadRequest:
    return ReadRequest(
        start_offset=start_offset, end_offset=None, max_bytes=700, read_committed=False
    )


async def test_h04_of_two_histories_the_higher_epochs_counts(site: Site) -> None:
    site.end_second_at_200()
    answers = await site.read(100, end_offset=200)
    assert offsets(answers) == list(range(100, 200, 10))
    found = await site.ask("ListOffsets", positions(-1))
    assert (found.offset, found.leader_epoch) == (300, 3)


async def test_positions(site: Site) -> None:
    async def at(timestamp: int) -> tuple[int, int]:
        found = await site.ask("ListOffsets", positions(timestamp))
        return found.offset, found.timestamp_ms

    assert (await at(-1))[0] == 400
    assert (await at(-2))[0] == 0
    assert (await at(-5))[0] == 399
    newest = max(one.max_timestamp_ms for one in site.segments())
    assert (await at(-3))[1] == newest
    assert (await at(0))[0] == 0
    assert await at(newest + 1) == (-1, -1)
    for only_a_broker in (-4, -6):
        with pytest.raises(Invalid, match="remote tier alone"):
            await at(only_a_broker)
    with pytest.raises(Invalid, match="-6 to -1"):
        await at(-7)


async def test_an_empty_remote_tier_begins_and_ends_at_its_start(site: Site) -> None:
    for start in (0, 100, 250):
        site.delete(start)
    site.rig.remote_start(400)
    assert (await site.ask("ListOffsets", positions(-1))).offset == 400
    assert (await site.ask("ListOffsets", positions(-2))).offset == 400
    assert (await site.ask("ListOffsets", positions(-5))).offset == -1
    assert (await site.ask("ListOffsets", positions(0))).offset == -1
    assert await site.read(400) == []
    plan = await site.ask("DescribeTopics", pb.DescribeTopicsRequest())
    row = plan.topics[0].partitions[0]
    assert (row.remote_log_start_offset, row.remote_next_offset) == (400, -1)


async def test_topics_as_readers_plan_by_them(site: Site) -> None:
    for request in (pb.DescribeTopicsRequest(), pb.DescribeTopicsRequest(topics=[PARTITION.topic])):
        plan = await site.ask("DescribeTopics", request)
        assert [(one.topic, one.topic_id) for one in plan.topics] == [
            (PARTITION.topic, PARTITION.topic_id.raw)
        ]
        rows = plan.topics[0].partitions
        assert [(row.partition, row.remote_next_offset) for row in rows] == [(0, 400)]
    with pytest.raises(NotFound, match="nope is not enabled"):
        await site.ask("DescribeTopics", pb.DescribeTopicsRequest(topics=[PARTITION.topic, "nope"]))


async def test_a_partition_that_left_only_tombstones_hides_no_other(site: Site) -> None:
    gone = PartitionKey(PARTITION.topic_id, 5)
    site.rig.ledger.partitions = lambda: (PARTITION.key, gone)  # type: ignore[method-assign]
    assert [row.partition for row in (await _only_topic(site)).partitions] == [0]


async def test_h07_h39_of_one_name_the_topic_that_was_decided_for_last(site: Site) -> None:
    """One that was recreated and disabled is no reason to give out the former one's records, though
    nobody has said of that one that it is gone.
    """
    old = site.rig.settings.view.topic(PARTITION.topic_id)
    assert old is not None
    newer = replace(old, topic_id=Uuid(b"\x09" * 16))
    site.rig.settings.write(replace(newer, state="kept"))
    assert (await _only_topic(site)).topic_id == newer.topic_id.raw
    site.rig.settings.write(old)
    assert (await _only_topic(site)).topic_id == PARTITION.topic_id.raw
    site.rig.settings.write(newer)
    found = await _only_topic(site)
    assert found.topic_id == newer.topic_id.raw and not found.partitions
    with pytest.raises(NotFound, match="no partition 0"):
        await site.read(0)
    site.rig.settings.write(replace(newer, state="deleting"))
    site.rig.settings.write(replace(old, state="deleting"))
    for ref in (REF, pb.TopicRef(topic_id=PARTITION.topic_id.raw)):
        with pytest.raises(NotFound, match="not enabled"):
            await site.read(0, topic=ref)


async def test_h39_what_was_left_over_of_a_former_topic_hides_none_of_its_name(site: Site) -> None:
    """The service keeps it by a record that is newer than that of the topic that has the name."""
    former = Uuid(b"\x09" * 16)
    site.rig.settings.write(kept_record(former, PARTITION.topic))
    assert (await _only_topic(site)).topic_id == PARTITION.topic_id.raw
    assert offsets(await site.read(390)) == [390]


async def _only_topic(site: Site) -> pb.TieredTopic:
    plan = await site.ask("DescribeTopics", pb.DescribeTopicsRequest())
    topic: pb.TieredTopic
    (topic,) = plan.topics
    return topic


async def test_a_kept_topics_data_stays_readable(site: Site) -> None:
    record = site.rig.settings.view.topic(PARTITION.topic_id)
    assert isinstance(record, TopicRecord)
    site.rig.settings.write(replace(record, state="kept"))
    assert offsets(await site.read(390)) == [390]
    assert (await _only_topic(site)).topic == PARTITION.topic


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"partition": 7}, NotFound, "no partition 7"),
        ({"partition": -1}, NotFound, "no partition -1"),
        ({"topic": pb.TopicRef(name="nope")}, NotFound, "nope is not enabled"),
        ({"topic": pb.TopicRef(name="a b")}, Invalid, "topic name"),
        ({"topic": pb.TopicRef()}, Invalid, "names no topic"),
        ({"topic": pb.TopicRef(topic_id=b"1")}, Invalid, "16 bytes"),
        ({"tiers": pb.ALL_TIERS}, Fenced, "this is a reader"),
    ],
)
async def test_errors(
    site: Site, fields: dict[str, object], kind: type[RemoteStorageError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await site.read(0, **fields)


async def test_what_needs_a_broker_is_refused_by_a_reader(site: Site) -> None:
    calls: tuple[tuple[str, object], ...] = (
        ("ListOffsets", pb.ListOffsetsRequest(topic=REF, timestamp=-1)),
        ("DescribePartition", pb.DescribePartitionRequest(topic=REF)),
        ("DescribeRemoteLog", pb.DescribeRemoteLogRequest(topic=REF)),
        ("Copy", pb.CopyRequest(topic=REF)),
    )
    for name, request in calls:
        with pytest.raises(Fenced, match="this is a reader"):
            await site.ask(name, request)


async def test_segments_and_their_objects(site: Site) -> None:
    async with site.stub() as stub:
        rows = [
            row async for row in stub.ListSegments(pb.ListSegmentsRequest(topic=REF), metadata=WHO)
        ]
        assert [row.start_offset for row in rows] == [0, 100, 250]
        request = pb.ReadObjectRequest(
            topic=REF,
            segment_id=rows[0].segment_id,
            start_position=0,
            end_position=rows[0].size_bytes,
        )
        data = b"".join([one.data async for one in stub.ReadObject(request, metadata=WHO)])
    assert site.rig.broker.log.startswith(data) and len(data) == rows[0].size_bytes


async def test_while_kafka_is_away_the_views_serve_as_they_are(site: Site) -> None:
    asked = 0

    async def away(deadline_ms: int) -> None:
        nonlocal asked
        asked += 1
        assert deadline_ms == 2_000
        raise Unavailable("no broker")

    site.rig.settings.barrier = away  # type: ignore[method-assign]
    for _ in range(5):
        assert offsets(await site.read(390)) == [390]
    assert asked == 1  # it is left in peace, or every call would wait for it in turn
    site.rig.clock.advance(QUIET_MS)
    assert offsets(await site.read(390)) == [390]
    assert asked == 2


async def test_views_that_were_never_ready_serve_nothing(site: Site) -> None:
    async def away(key: PartitionKey, deadline_ms: int) -> None:
        raise Unavailable("no broker")

    site.rig.ledger.barrier = away  # type: ignore[method-assign]
    site.rig.ledger.is_ready = False
    for _ in range(2):
        with pytest.raises(Unavailable, match="not read yet"):
            await site.read(0)
    assert offsets(await _ready(site).read(390)) == [390]


def _ready(site: Site) -> Site:
    site.rig.ledger.is_ready = True
    return site


async def test_endpoints_are_those_that_were_heard_of_lately_and_itself(site: Site) -> None:
    rig = site.rig

    def service(node_id: int) -> ServiceRecord:
        address = {"grpc": f"127.0.0.1:{node_id}"}
        return ServiceRecord(node_id=node_id, listen={}, advertised=address, version="2")

    def reader(port: int) -> ReaderRecord:
        return ReaderRecord(grpc_address=f"127.0.0.1:{port}", http_address="", version="3")

    rig.settings.now_ms = rig.clock.now
    rig.settings.write(service(8), node_id=8)
    rig.settings.write(reader(80), node_id=-1)
    rig.settings.write(reader(7), node_id=-1)
    rig.clock.advance(29_000)
    rig.settings.now_ms = rig.clock.now
    rig.settings.write(service(9), node_id=9)

    async def seen() -> list[tuple[str, str, int, int]]:
        answer = await site.ask("DescribeEndpoints", pb.DescribeEndpointsRequest())
        return [
            (row.role, row.grpc_address, row.node_id, row.heartbeat_age_ms)
            for row in answer.endpoints
        ]

    assert await seen() == [
        ("broker", "127.0.0.1:8", 8, 29_000),
        ("broker", "127.0.0.1:9", 9, 0),
        ("reader", "127.0.0.1:7", -1, 0),
        ("reader", "127.0.0.1:80", -1, 29_000),
    ]
    rig.clock.advance(2_000)
    assert [row[1] for row in await seen()] == ["127.0.0.1:9", "127.0.0.1:7"]
