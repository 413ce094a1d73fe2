"""FetchService: both tiers in one stream, positions, and errors with their typed detail."""

from dataclasses import replace

import grpc
import pytest
from grpc import aio

from kip405.batches import batch_headers
from kip405.errors import (
    Corrupt,
    Elsewhere,
    Fenced,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
)
from kip405.ids import Uuid
from rlm.api.call_metadata import call_metadata
from rlm.remote_log.reads import ReadRequest
from rlm.topics.verbs import EnableOptions
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.throttle import NO_LIMITS
from tests.rlm.api.enabled import enabled_node
from tests.rlm.api.harness import PER_BATCH, Log, Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

WHO = call_metadata("tests", None)
REF = pb.TopicRef(name=TOPIC)


async def read(address: str, **fields: object) -> list[pb.FetchResponse]:
    request = pb.FetchRequest(**{"topic": REF, "max_bytes": 300, **fields})  # type: ignore[arg-type]
    async with channel_to(address) as channel:
        stub = FetchServiceStub(channel)
        try:
            return [answer async for answer in stub.Fetch(request, metadata=WHO)]
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {address}") from error


def offsets(answers: list[pb.FetchResponse]) -> list[int]:
    return [header.base_offset for one in answers for _, header in batch_headers(one.batches)]


def missing(answers: list[pb.FetchResponse]) -> list[tuple[int, int]]:
    return [(row.start_offset, row.end_offset) for one in answers for row in one.missing]


async def test_every_batch_once_over_both_tiers() -> None:
    async with enabled_node(Cluster()) as node:
        answers = await read(node.address, start_offset=0)
    assert offsets(answers) == list(range(0, 60, PER_BATCH))
    tiers = [one.tier for one in answers]
    assert tiers == sorted(tiers)
    assert set(tiers) == {pb.REMOTE, pb.LOCAL}
    assert answers[-1].next_offset == 60
    assert missing(answers) == []
    first = answers[0]
    assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (60, 54, 0)


async def test_read_committed_ends_at_the_last_stable_offset() -> None:
    async with enabled_node(Cluster(), log=Log(aborted=((7, 3),))) as node:
        answers = await read(node.address, start_offset=1, isolation_level=pb.READ_COMMITTED)
        plain = await read(node.address, start_offset=1)
    assert offsets(answers) == list(range(0, 54, PER_BATCH))
    assert [(row.producer_id, row.first_offset) for row in answers[0].aborted_transactions] == [
        (7, 3)
    ]
    assert not plain[0].aborted_transactions


async def test_end_offset_is_exclusive_and_the_id_names_the_topic() -> None:
    async with enabled_node(Cluster()) as node:
        answers = await read(
            node.address,
            topic=pb.TopicRef(topic_id=TOPIC_ID.raw),
            start_offset=20,
            end_offset=28,
        )
        nothing = await read(node.address, start_offset=60)
        within_one_batch = await read(node.address, start_offset=4, end_offset=5)
    assert offsets(answers) == [18, 21, 24, 27]
    assert offsets(within_one_batch) == [3]
    assert nothing == []


async def test_h15_a_hole_is_passed_over() -> None:
    async with enabled_node(Cluster(), log=Log(remote_next=12)) as node:
        answers = await read(node.address, start_offset=6)
        inside = await read(node.address, start_offset=15, end_offset=20)
    assert offsets(answers) == [6, 9, *range(24, 60, PER_BATCH)]
    assert missing(answers) == [(12, 24)]
    assert (offsets(inside), missing(inside)) == ([], [(15, 20)])
    assert inside[-1].next_offset == 20


async def test_h15_where_no_records_were_nothing_is_missing() -> None:
    async with enabled_node(Cluster(), log=Log(remote_next=12, empty=((12, 21),))) as node:
        answers = await read(node.address, start_offset=6)
    assert offsets(answers) == [6, 9, *range(24, 60, PER_BATCH)]
    assert missing(answers) == [(21, 24)]


@pytest.mark.parametrize("remote_next", [12, -1])
async def test_h15_a_gap_that_is_not_settled_is_not_passed_over(remote_next: int) -> None:
    log = Log(remote_next=remote_next, unsettled_next=20)
    async with enabled_node(Cluster(), log=log) as node:
        with pytest.raises(Unavailable, match="not settled"):
            await read(node.address, start_offset=6)


async def test_h15_below_the_start_no_start_is_named_that_leaves_out_what_is_not_settled() -> None:
    """A client would go on at the local start, 24, and skip [6, 20)."""
    log = Log(remote_start=6, remote_next=-1, unsettled_next=20)
    async with enabled_node(Cluster(), log=log) as node:
        with pytest.raises(Unavailable, match="not settled"):
            await read(node.address, start_offset=3)


async def test_h15_below_the_start_a_remote_start_is_named_before_all_is_settled() -> None:
    log = Log(remote_start=6, remote_next=12, unsettled_next=20)
    async with enabled_node(Cluster(), log=log) as node:
        with pytest.raises(Invalid, match="log_start_offset=6"):
            await read(node.address, start_offset=3)


async def test_a_trim_during_the_read_is_not_noticed() -> None:
    log = Log(remote_next=48, trims_to=[24, 45, 45])
    async with enabled_node(Cluster(), log=log) as node:
        answers = await read(node.address, start_offset=0)
    assert offsets(answers) == list(range(0, 60, PER_BATCH))


async def test_h02_a_remote_start_that_moves_up_during_the_read_is_reported() -> None:
    log = Log()
    async with enabled_node(Cluster(), log=log) as node:
        seen = []
        with pytest.raises(Invalid, match="log_start_offset=18"):
            async for piece in node.reading.stream(await node.led(), _wanted(0)):
                seen.append(piece.next_offset)
                log.remote_start = 18
    assert len(seen) == 1 and seen[0] < 18


def _wanted(start_offset: int) -> ReadRequest:
    return ReadRequest(
        start_offset=start_offset, end_offset=None, max_bytes=300, read_committed=False
    )


async def test_what_retention_took_during_the_read_is_an_error_not_a_gap() -> None:
    log = Log(remote_next=-1, local_start=0, trims_to=[0, 0, 45])
    async with enabled_node(Cluster(), log=log) as node:
        with pytest.raises(Invalid, match="log_start_offset=45"):
            await read(node.address, start_offset=0)


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"start_offset": -3}, Invalid, "negative"),
        ({"start_offset": 6, "max_bytes": 1 << 30}, Invalid, "max_bytes"),
        ({"partition": 7}, NotFound, "it has 0 to 1"),
        ({"topic": pb.TopicRef(name="nope")}, NotFound, "nope"),
        ({"topic": pb.TopicRef(name="a b")}, Invalid, "topic name"),
        ({"topic": pb.TopicRef()}, Invalid, "names no topic"),
        ({"topic": pb.TopicRef(topic_id=b"1")}, Invalid, "16 bytes"),
        ({"topic": pb.TopicRef(topic_id=b"1" * 16)}, NotFound, "no topic has the id"),
    ],
)
async def test_errors_carry_kind_and_words(
    fields: dict[str, object], kind: type[RemoteStorageError], words: str
) -> None:
    async with enabled_node(Cluster(), log=Log(remote_start=6)) as node:
        with pytest.raises(kind, match=words):
            await read(node.address, **{"start_offset": 6, **fields})


@pytest.mark.parametrize(
    ("offset", "bounds", "words"),
    [(5, (6, None), "below log_start_offset=6"), (61, (None, 60), "beyond high_watermark=60")],
)
async def test_an_offset_outside_the_log_is_refused_with_the_bound(
    offset: int, bounds: tuple[int | None, int | None], words: str
) -> None:
    """Clients of older versions read the bound out of the message."""
    async with enabled_node(Cluster(), log=Log(remote_start=6)) as node:
        with pytest.raises(OffsetOutOfRange, match=words) as caught:
            await read(node.address, start_offset=offset)
    assert (caught.value.log_start_offset, caught.value.high_watermark) == bounds


@pytest.mark.parametrize("error", [Corrupt("object x"), Unavailable("store gone")])
async def test_errors_of_the_store_keep_their_kind(error: RemoteStorageError) -> None:
    async with enabled_node(Cluster(), log=Log(remote_error=error)) as node:
        with pytest.raises(type(error), match=str(error)):
            await read(node.address, start_offset=0)


async def test_h11_lost_objects_are_no_missing_topic() -> None:
    """A caller that gets NOT_FOUND misses nothing: a job would go on without years of records."""
    log = Log(remote_error=NotFound("object x is gone"))
    async with enabled_node(Cluster(), log=log) as node:
        with pytest.raises(Corrupt, match="object x is gone"):
            await read(node.address, start_offset=0)
        log.start_with_error = 6  # then they were deleted in order
        with pytest.raises(Invalid, match="log_start_offset=6"):
            await read(node.address, start_offset=0)


async def test_not_leader_names_the_leaders_address() -> None:
    cluster = Cluster()
    async with enabled_node(cluster, node_id=1) as one, enabled_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        with pytest.raises(Elsewhere, match="led by broker 1") as caught:
            await read(two.address, start_offset=0)
    assert caught.value.leader_address == one.address
    cluster.leader = -1
    async with enabled_node(cluster) as node:
        with pytest.raises(Unavailable, match="no leader"):
            await read(node.address, start_offset=0)


async def test_h04_below_a_frozen_partitions_remote_start_no_bound_is_named() -> None:
    """A client would go on at the local start, 24, and skip the records that are withheld."""
    async with enabled_node(Cluster(), log=Log(remote_start=6, frozen=True)) as node:
        with pytest.raises(Fenced, match="frozen: only the broker's own log is read, from 24 on"):
            await read(node.address, start_offset=3)
    async with enabled_node(Cluster(), log=Log(remote_start=24, frozen=True)) as node:
        with pytest.raises(Invalid, match="log_start_offset=24"):
            await read(node.address, start_offset=3)


async def test_h04_a_frozen_partition_is_read_within_the_brokers_log_only() -> None:
    async with enabled_node(Cluster(), log=Log(frozen=True)) as node:
        with pytest.raises(Fenced, match="frozen: only the broker's own log is read, from 24 on"):
            await read(node.address, start_offset=0)
        answers = await read(node.address, start_offset=24)
    assert offsets(answers) == list(range(24, 60, PER_BATCH))


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 60), (-2, 0), (-4, 24), (-5, 29), (-6, 30), (777, 9)]
)
async def test_list_offsets_over_both_tiers(timestamp: int, offset: int) -> None:
    cluster = Cluster()
    async with enabled_node(cluster, node_id=1), enabled_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        request = pb.ListOffsetsRequest(topic=REF, timestamp=timestamp)
        async with channel_to(two.address) as channel:
            stub = FetchServiceStub(channel)
            answer = await stub.ListOffsets(request, metadata=WHO)
    assert answer.offset == offset


async def _call(node: Node, name: str, request: object) -> object:
    async with channel_to(node.address) as channel:
        try:
            return await getattr(FetchServiceStub(channel), name)(request, metadata=WHO)
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {node.address}") from error


async def test_no_records_of_a_topic_that_is_not_enabled_are_given_away() -> None:
    """Its clients have ACLs of their own at the broker; the API knows none."""
    async with api_node(Cluster()) as node:
        with pytest.raises(NotFound, match="not enabled"):
            await read(node.address, start_offset=0)
        await node.service.verbs.enable(TOPIC, EnableOptions())
        assert offsets(await read(node.address, start_offset=50)) == [48, 51, 54, 57]


async def test_describe_copy_and_segments_are_answered_by_the_leader() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        describe = pb.DescribePartitionRequest(topic=REF)
        with pytest.raises(NotFound, match="not enabled"):
            await _call(one, "DescribePartition", describe)
        await one.service.verbs.enable(TOPIC, EnableOptions())
        await two.service.settings.barrier(1)
        described = await _call(two, "DescribePartition", describe)
        assert isinstance(described, pb.PartitionDescription)
        assert (described.leader, described.remote_next_offset) == (1, 30)
        copied = await _call(two, "Copy", pb.CopyRequest(topic=REF, up_to_offset=12))
        assert isinstance(copied, pb.CopyResponse)
        assert (copied.first_uncopied_offset, copied.reason) == (12, "asked of node 1")
        two.ledger.copied(metadata(1, 0, 500, {0: 0}), metadata(2, 500, 900, {0: 0}))
        async with channel_to(two.address) as channel:
            stub = FetchServiceStub(channel)
            call = stub.ListSegments(pb.ListSegmentsRequest(topic=REF), metadata=WHO)
            rows = [row async for row in call]
    assert [(row.start_offset, row.next_offset) for row in rows] == [(0, 500), (500, 900)]
    names = [row.objects_stem.rpartition("/")[2] for row in rows]
    assert names == [f"{row.start_offset:020d}-{Uuid(row.segment_id)}" for row in rows]
    assert [row.custom_metadata for row in rows] == [
        metadata(1, 0, 500, {0: 0}).custom_metadata or b"",
        metadata(2, 500, 900, {0: 0}).custom_metadata or b"",
    ]
    kept = metadata(1, 0, 500, {0: 0}).event_timestamp_ms
    assert rows[0].HasField("event_timestamp_ms") and rows[0].event_timestamp_ms == kept


async def test_every_call_names_a_principal_and_shows_the_token() -> None:
    async with (
        enabled_node(Cluster(), tokens=lambda: ("secret",)) as node,
        channel_to(node.address) as channel,
    ):
        stub = FetchServiceStub(channel)
        request = pb.ListOffsetsRequest(topic=REF, timestamp=-2)
        for metadata_sent, code in (
            ((), grpc.StatusCode.UNAUTHENTICATED),
            (call_metadata("me", None), grpc.StatusCode.UNAUTHENTICATED),
            (call_metadata("me", "wrong"), grpc.StatusCode.UNAUTHENTICATED),
            (call_metadata("", "secret"), grpc.StatusCode.UNAUTHENTICATED),
            (call_metadata("me", "secret"), grpc.StatusCode.OK),
        ):
            call = stub.ListOffsets(request, metadata=metadata_sent)
            assert await call.code() is code


async def test_h23_historical_reads_wait_for_their_quota_and_local_ones_never() -> None:
    limits = replace(NO_LIMITS, client_bytes_per_second=100)
    async with enabled_node(Cluster(), limits=limits) as node:
        clock = node.service.clock
        began_ms = clock.now
        answers = await read(node.address, start_offset=0)
        assert offsets(answers) == list(range(0, 60, PER_BATCH))
        remote_bytes = sum(len(one.batches) for one in answers if one.tier == pb.REMOTE)
        last_bytes = [len(one.batches) for one in answers if one.tier == pb.REMOTE][-1]
        # A second's worth was there, and the debt of the last one is not waited for.
        waited_ms = (remote_bytes - last_bytes - 100) * 10
        assert clock.now - began_ms == pytest.approx(waited_ms, abs=10)
        before_ms = clock.now
        await read(node.address, start_offset=40)
        assert clock.now == before_ms
        counts = node.throttle.counts
        assert counts.given_bytes["api", "remote"] == remote_bytes
        assert counts.given_bytes["api", "local"] > 0
        assert counts.throttled_ms["client"] == before_ms - began_ms


def test_an_elsewhere_survives_the_wire_only_with_its_address() -> None:
    error = Elsewhere("x", "h:1")
    assert isinstance(error, Fenced)
    assert not error.retriable
