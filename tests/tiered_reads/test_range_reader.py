"""The four read modes over a fetch API and a Kafka in memory: which tier gave what, what is lost,
what is refused; and that nothing is left behind, also not by a reader who leaves early.
"""

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from kafka_protocol.apis import FETCH
from kip405.batches import batch_headers
from kip405.errors import Unavailable
from rlm.v1 import fetch_pb2 as pb
from rlm_spark.decode import arrow_schema, record_batches
from tests.kip405.batch_builder import batch, log_of
from tests.tiered_reads.fake_kafka import FakeKafka
from tests.tiered_reads.fake_service import FakeService, Responses, refuse, refusing, stalling
from tiered_reads import fetch_client, kafka_client
from tiered_reads.errors import (
    ConnectorError,
    DecodeError,
    KafkaClientError,
    ServiceError,
    TopicChangedError,
)
from tiered_reads.kafka_requests import FetchedPartition
from tiered_reads.range_reader import cut, read_range
from tiered_reads.stopping import Stop
from tiered_reads.values import (
    ConnectorOptions,
    DataLoss,
    Fetched,
    OffsetRange,
    ReadMode,
    TopicPartition,
)

TOPIC_PARTITION = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Idle clients are closed after each test, and then no thread of ours is left."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)
    for shared in (fetch_client.SHARED, kafka_client.SHARED):
        shared.close_idle()
    assert not [one.name for one in threading.enumerate() if one.name.startswith("rlm-")]


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(end=60, remote_end=40).running() as running:
        yield running


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with FakeKafka(log_start=20, end=60).running() as running:
        yield running


def options(
    mode: ReadMode,
    service: FakeService | None = None,
    kafka: FakeKafka | None = None,
    **changed: int,
) -> ConnectorOptions:
    return ConnectorOptions(
        read_mode=mode,
        kafka=kafka.kafka(retry__backoff__ms="5") if kafka else {},
        service=service.connection() if service else None,
        **{"poll_timeout_ms": 60_000, **changed},  # type: ignore[arg-type]
    )


def read(
    given: ConnectorOptions, start: int = 0, end: int = 60
) -> tuple[list[Fetched], list[DataLoss]]:
    lost: list[DataLoss] = []
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=start, end_offset=end)
    return list(read_range(given, wanted, lost.append)), lost


def offsets(pieces: list[Fetched], start: int, end: int) -> list[int]:
    """The offsets of the records that count, by the rule of Fetched."""
    return [
        offset
        for piece in pieces
        for _, header in batch_headers(piece.batches)
        for offset in range(header.base_offset, header.next_offset)
        if max(start, piece.start_offset) <= offset < min(end, piece.next_offset)
    ]


def edges(pieces: list[Fetched]) -> tuple[int, int]:
    assert all(a.next_offset == b.start_offset for a, b in itertools.pairwise(pieces))
    return pieces[0].start_offset, pieces[-1].next_offset


def remote_fetches(service: FakeService) -> list[tuple[int, int]]:
    return [(sent.start_offset, sent.end_offset) for sent in service.asked("Fetch")]


def kafka_offsets(kafka: FakeKafka) -> list[int]:
    return [row["topics"][0]["partitions"][0]["fetch_offset"] for row in kafka.broker.asked(FETCH)]


@pytest.mark.parametrize("per_batch", [3, 7, 20])
@pytest.mark.parametrize("mode", [ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED])
def test_every_offset_once_over_both_tiers(
    service: FakeService, kafka: FakeKafka, mode: ReadMode, per_batch: int
) -> None:
    service.per_batch = kafka.per_batch = per_batch
    pieces, lost = read(options(mode, service, kafka), 1, 59)
    assert offsets(pieces, 1, 59) == list(range(1, 59))
    assert lost == []


def test_kafka_preferred_asks_the_remote_tier_only_below_the_log_start(
    service: FakeService, kafka: FakeKafka
) -> None:
    edges(read(options(ReadMode.KAFKA_PREFERRED, service, kafka))[0])
    assert remote_fetches(service) == [(0, 20)]
    # The remote batch reaches beyond the failover offset.
    assert min(kafka_offsets(kafka)[1:]) == 21


def test_kafka_preferred_that_kafka_has_asks_no_service(kafka: FakeKafka) -> None:
    given = options(ReadMode.KAFKA_PREFERRED, FakeService(address="127.0.0.1:9"), kafka)
    assert offsets(read(given, 20, 60)[0], 20, 60) == list(range(20, 60))


def test_kafka_preferred_falls_over_again_when_kafka_is_trimmed_on_the_way(
    service: FakeService, kafka: FakeKafka
) -> None:
    kafka.bytes_a_fetch = 1
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=20, end_offset=60)
    pieces = read_range(options(ReadMode.KAFKA_PREFERRED, service, kafka), wanted, print)
    found = [next(pieces)]
    kafka.log_start = service.remote_end = 50
    found += pieces
    assert offsets(found, 20, 60) == list(range(20, 60))
    [(_, end)] = remote_fetches(service)
    assert end == 50


def test_remote_preferred_asks_kafka_only_beyond_the_remote_end(
    service: FakeService, kafka: FakeKafka
) -> None:
    read(options(ReadMode.REMOTE_PREFERRED, service, kafka))
    assert remote_fetches(service) == [(0, 40)]
    assert min(kafka_offsets(kafka)) >= 40


def test_remote_only_needs_no_kafka(service: FakeService) -> None:
    pieces, lost = read(options(ReadMode.REMOTE_ONLY, service), 0, 39)
    assert (edges(pieces), lost) == ((0, 39), [])


def test_without_kafka_the_leader_answers_the_tail(service: FakeService) -> None:
    for mode in (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED):
        service.calls.clear()
        assert edges(read(options(mode, service))[0]) == (0, 60)
        assert [(sent.start_offset, sent.tiers) for sent in service.asked("Fetch")] == [
            (0, 1),
            (42, 0),
        ]


def test_kafka_only_below_the_log_start_is_lost_up_to_it(kafka: FakeKafka) -> None:
    pieces, [loss] = read(options(ReadMode.KAFKA_ONLY, kafka=kafka), 5, 60)
    assert (loss.start_offset, loss.end_offset) == (5, 20)
    # The batch [18, 21) holds 20, but 18 and 19 are deleted.
    assert offsets(pieces, 5, 60) == list(range(20, 60))


def test_the_decoder_gives_no_deleted_record_of_a_batch_that_begins_below_the_log_start(
    kafka: FakeKafka,
) -> None:
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=5, end_offset=58)
    pieces = read_range(options(ReadMode.KAFKA_ONLY, kafka=kafka), wanted, lambda _: None)
    batches = record_batches(pieces, wanted, arrow_schema(["offset"]), read_committed=False)
    found = [offset for one in batches for offset in one.column("offset").to_pylist()]
    assert found == list(range(20, 58))


def test_h15_an_answer_with_a_gap_inside_is_read_around_the_gap(
    service: FakeService, kafka: FakeKafka
) -> None:
    def gap_inside(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        yield pb.FetchResponse(
            batches=batch(0, 21) + batch(27, 3),
            next_offset=30,
            missing=[pb.OffsetRange(start_offset=21, end_offset=27)],
        )

    service.scripted.append(gap_inside)
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=60)
    pieces = read_range(options(ReadMode.REMOTE_PREFERRED, service, kafka), wanted, print)
    batches = record_batches(pieces, wanted, arrow_schema(["offset"]), read_committed=False)
    found = [offset for one in batches for offset in one.column("offset").to_pylist()]
    assert found == list(range(60))


@pytest.mark.parametrize("is_older", [False, True])
def test_below_both_tiers_is_lost_up_to_the_first(
    service: FakeService, kafka: FakeKafka, is_older: bool
) -> None:
    service.start, service.is_older = 12, is_older
    pieces, [loss] = read(options(ReadMode.KAFKA_PREFERRED, service, kafka), 5, 60)
    assert (loss.start_offset, loss.end_offset) == (5, 12)
    assert "log_start_offset=12" in loss.reason
    assert "its log of t-0 begins at 20" in loss.reason
    assert offsets(pieces, 5, 60) == list(range(12, 60))


@pytest.mark.parametrize("is_older", [False, True])
def test_the_remote_log_start_moves_up_on_the_way(service: FakeService, is_older: bool) -> None:
    service.is_older = is_older

    def retention(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        yield from itertools.islice(service.serve(request, context), 2)
        service.start = 30
        refuse(context, Unavailable("the segment is gone"))

    service.scripted.append(retention)
    pieces, [loss] = read(options(ReadMode.REMOTE_ONLY, service), 0, 39)
    assert (loss.start_offset, loss.end_offset) == (6, 30)
    assert offsets(pieces, 0, 39) == [*range(6), *range(30, 39)]


def test_h15_offsets_missing_in_the_remote_tier_come_from_kafka_where_it_has_them(
    service: FakeService, kafka: FakeKafka
) -> None:
    service.missing = ((9, 15), (24, 30))
    pieces, [loss] = read(options(ReadMode.REMOTE_PREFERRED, service, kafka))
    assert (loss.start_offset, loss.end_offset) == (9, 15)
    assert offsets(pieces, 0, 60) == [*range(9), *range(15, 60)]


def test_what_the_callback_raises_ends_the_read(service: FakeService) -> None:
    service.start = 12

    def refuse(loss: DataLoss) -> None:
        raise LookupError(loss.reason)

    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=39)
    with pytest.raises(LookupError):
        list(read_range(options(ReadMode.REMOTE_ONLY, service), wanted, refuse))


def test_a_log_that_was_cut_below_the_offset_is_lost(
    service: FakeService, kafka: FakeKafka
) -> None:
    service.remote_end = 60
    pieces, [loss] = read(options(ReadMode.KAFKA_PREFERRED, service, kafka), 70, 80)
    assert pieces == []
    assert (loss.start_offset, loss.end_offset) == (70, 80)
    assert "was cut" in loss.reason


def test_a_log_that_ends_before_the_range_is_an_error_and_no_loss(kafka: FakeKafka) -> None:
    given = options(ReadMode.KAFKA_ONLY, kafka=kafka, poll_timeout_ms=3_000)
    with pytest.raises(KafkaClientError, match="nothing came at offset 60"):
        read(given, 50, 80)


def test_a_remote_end_below_the_plan_is_an_error_and_no_loss(service: FakeService) -> None:
    given = options(ReadMode.REMOTE_ONLY, service, poll_timeout_ms=3_000)
    with pytest.raises(ConnectorError, match=r"no service could confirm .* ends at 42"):
        read(given, 30, 50)


@pytest.mark.parametrize("mode", [ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED])
def test_what_a_reader_behind_denies_is_lost_by_the_leaders_word_only(
    service: FakeService, kafka: FakeKafka, mode: ReadMode
) -> None:
    """The reader was cut off from Kafka since before the topic was enabled, or a copy finished."""
    with FakeService(remote_end=60, topics=()).running() as reader:
        rows = (
            pb.Endpoint(grpc_address=service.address, role="broker", node_id=1),
            pb.Endpoint(grpc_address=reader.address, role="reader", node_id=-1),
        )
        service.endpoints = reader.endpoints = rows
        assert read(options(mode, service, kafka), 3, 60)[1] == []
        fetch_client.SHARED.close_idle()
        reader.topics, reader.missing = ("t",), ((6, 9),)
        pieces, lost = read(options(mode, service, kafka), 3, 60)
        assert (offsets(pieces, 3, 60), lost) == (list(range(3, 60)), [])
        assert reader.asked("Fetch")


def test_h06_the_topic_of_the_plan_and_no_other(service: FakeService, kafka: FakeKafka) -> None:
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=60)
    for mode in (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED, ReadMode.REMOTE_ONLY):
        given = options(mode, service, kafka)
        with pytest.raises(TopicChangedError, match="the plan knows it by id"):
            list(read_range(given, wanted, list[DataLoss]().append, topic_id=bytes(15) + b"\7"))
        short = replace(wanted, end_offset=40)
        assert list(read_range(given, short, list[DataLoss]().append, topic_id=service.topic_id))


def test_a_topic_that_is_not_tiered_is_kafkas_alone(service: FakeService, kafka: FakeKafka) -> None:
    service.topics, service.start = ("another",), 20
    for mode in (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED):
        assert offsets(read(options(mode, service, kafka), 20)[0], 20, 60) == list(range(20, 60))
        _, [loss] = read(options(mode, service, kafka), 10)
        assert (loss.start_offset, loss.end_offset) == (10, 20)
        assert "not enabled for tiering" in loss.reason


def test_h06_tiers_that_know_the_topic_by_different_ids(
    service: FakeService, kafka: FakeKafka
) -> None:
    service.topic_id = bytes(15) + b"\7"
    for mode in (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED):
        with pytest.raises(TopicChangedError, match="recreated"):
            read(options(mode, service, kafka))


def test_a_service_that_stays_away_is_no_loss(service: FakeService) -> None:
    service.scripted.extend(refusing(Unavailable("store away")) for _ in range(1000))
    with pytest.raises(ServiceError, match="store away"):
        read(options(ReadMode.REMOTE_ONLY, service, poll_timeout_ms=2_000), 0, 30)


def test_modes_need_their_addresses(kafka: FakeKafka) -> None:
    with pytest.raises(ConnectorError, match=r"needs rlm\.endpoints"):
        read(options(ReadMode.KAFKA_PREFERRED, kafka=kafka))
    with pytest.raises(ConnectorError, match=r"needs kafka\.bootstrap"):
        read(options(ReadMode.KAFKA_ONLY))


def test_an_empty_range_asks_no_tier() -> None:
    assert read(options(ReadMode.KAFKA_ONLY), 5, 5) == ([], [])


@pytest.mark.parametrize("stalled", [True, False])
def test_a_reader_that_leaves_early_leaves_nothing(
    service: FakeService, kafka: FakeKafka, stalled: bool
) -> None:
    if stalled:
        service.scripted.append(stalling(after=1))
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=60)
    pieces = read_range(options(ReadMode.KAFKA_PREFERRED, service, kafka), wanted, print)
    next(pieces)
    pieces.close()
    assert "rlm-fetch-ahead" not in {one.name for one in threading.enumerate()}


@pytest.mark.parametrize("after", [0, 1])
def test_a_consumer_in_another_thread_is_stopped_from_outside(
    service: FakeService, after: int
) -> None:
    """Whatever the service does, which is nothing."""
    service.scripted.append(stalling(after=after))
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=60)
    stop = Stop()
    pieces = read_range(options(ReadMode.REMOTE_ONLY, service), wanted, print, stopped_by=stop)
    for _ in range(after):
        next(pieces)
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    assert list(pieces) == []
    timer.join()
    assert "rlm-fetch-ahead" not in {one.name for one in threading.enumerate()}


def test_reads_of_one_process_share_clients(service: FakeService, kafka: FakeKafka) -> None:
    given = options(ReadMode.KAFKA_PREFERRED, service, kafka)
    for _ in range(3):
        read(given)
    assert kafka.broker.connections <= 3  # bootstrap, and one for good
    assert len(service.asked("DescribeEndpoints")) == 1


def test_a_forked_worker_begins_with_nothing_of_its_parents(
    service: FakeService, kafka: FakeKafka
) -> None:
    """Spark's daemon forks too, though it never reads; here Kafka's client was in use before."""
    given = replace(options(ReadMode.KAFKA_ONLY, kafka=kafka))
    read(given, 20, 30)
    opened = kafka.broker.connections
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            found = offsets(read(given, 20, 60)[0], 20, 60)
            kafka_client.SHARED.close_idle()
            os.write(there, b"%d" % len(found))
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as answer:
        assert answer.read() == b"40"
    assert os.waitpid(child, 0)[1] == 0
    assert kafka.broker.connections > opened, "the child has used a connection of its parent"
    assert offsets(read(given, 20, 60)[0], 20, 60) == list(range(20, 60))


def cut_of(records: bytes, start: int, end: int) -> Fetched | None:
    return cut(FetchedPartition(error_code=0, records=records), TOPIC_PARTITION, start, end)


def test_a_cut_keeps_whole_batches_of_the_range() -> None:
    log = log_of(0, [5, 5, 5])
    first, second = len(batch(0, 5)), len(log_of(0, [5, 5]))
    piece = cut_of(log[: second + 30], 2, 100)
    assert piece is not None
    assert (len(piece.batches), piece.start_offset, piece.next_offset) == (second, 2, 10)
    piece = cut_of(log, 5, 7)
    assert piece is not None
    assert piece.batches == log[first:second]
    assert piece.next_offset == 10
    assert cut_of(log[:40], 0, 100) is None
    assert cut_of(b"", 0, 100) is None


def test_a_cut_sees_that_nothing_more_is_coming() -> None:
    """A gap (compaction) up to a batch at or beyond the end: the range is covered."""
    log = batch(0, 5) + batch(20, 5)
    piece = cut_of(log, 0, 20)
    assert piece is not None
    assert (piece.batches, piece.next_offset) == (batch(0, 5), 20)
    piece = cut_of(log, 7, 15)
    assert piece is not None
    assert (piece.batches, piece.start_offset, piece.next_offset) == (b"", 7, 15)


def test_bytes_that_are_no_batches_are_an_error_with_their_offset() -> None:
    with pytest.raises(DecodeError, match=r"t-0 at offset 3"):
        cut_of(b"\0" * 100, 3, 9)
