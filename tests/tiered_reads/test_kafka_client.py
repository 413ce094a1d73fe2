"""The connector's own consumer against a broker in memory: both protocol generations, what passes,
what is final, topics that go and come back under another id.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from kafka_protocol.apis import FETCH, METADATA
from tests.tiered_reads.fake_kafka import NOT_LEADER, TOPIC_ID, FakeKafka
from tests.waiting import pass_time
from tiered_reads.errors import KafkaClientError, TopicChangedError
from tiered_reads.kafka_client import KafkaClient, TopicGone
from tiered_reads.kafka_connection import BrokerConnections, LoopThread, connect
from tiered_reads.kafka_options import KafkaSettings, kafka_settings
from tiered_reads.kafka_requests import NO_TOPIC_ID, metadata_request
from tiered_reads.stopping import Stop, Stopped
from tiered_reads.values import TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)
NEW, OLD = (17, 13), (11, 5)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)


def client_of(
    kafka: FakeKafka, *, patience_ms: int = 60_000, gone_after_ms: int = 0
) -> KafkaClient:
    settings = kafka_settings(kafka.kafka(retry__backoff__ms="5"))
    return KafkaClient(settings, patience_ms=patience_ms, gone_after_ms=gone_after_ms)


@pytest.mark.parametrize("newest", [NEW, OLD])
def test_whole_batches_as_stored(newest: tuple[int, int]) -> None:
    with FakeKafka(newest=newest).running() as kafka:
        client = client_of(kafka)
        topic_id = client.topic("t", Stop()).topic_id
        assert topic_id == (TOPIC_ID if newest is NEW else NO_TOPIC_ID)
        answer = client.fetch(TOPIC_PARTITION, topic_id, 4, read_committed=True, stop=Stop())
        assert answer is not None
        assert answer.high_watermark == answer.last_stable_offset == 30
        assert answer.aborted == ((7, 4),)
        assert answer.records[:8] == (3).to_bytes(8, "big")
        [asked] = kafka.broker.asked(FETCH)
        assert asked["isolation_level"] == 1
        assert client.fetch(TOPIC_PARTITION, topic_id, 31, read_committed=True, stop=Stop()) is None
        client.close()


@pytest.mark.parametrize("newest", [NEW, OLD])
def test_offsets_and_topics(newest: tuple[int, int]) -> None:
    with FakeKafka(log_start=12, newest=newest).running() as kafka:
        client = client_of(kafka)
        for asked, found in ((-2, 12), (-1, 30), (1_020, 20), (5_000, None)):
            answer = client.offsets({TOPIC_PARTITION: asked}, read_committed=True, stop=Stop())
            assert answer == {TOPIC_PARTITION: found}
        assert set(client.topics(None, Stop())) == {"t"}
        assert client.topics(["nothing"], Stop()) == {}
        client.close()


def test_connections_that_another_caller_closed_are_waited_for_no_longer_than_a_request() -> None:
    async def ask(settings: KafkaSettings) -> None:
        connections = await connect(settings)
        await connections.close()
        sending = asyncio.ensure_future(connections.send_to(99, metadata_request([])))
        while not sending.done():
            await asyncio.sleep(0.05)
            pass_time(request_s)
        await sending

    with FakeKafka().running() as kafka:
        loop = LoopThread("rlm-kafka-consumer")
        request_s = 60
        settings = kafka_settings(kafka.kafka(request__timeout__ms=f"{request_s}000"))
        stop = Stop()
        too_long = threading.Timer(60, stop.set)
        too_long.start()
        with pytest.raises(TimeoutError):
            loop.run(ask(settings), stop)
        too_long.cancel()
        loop.close()


def test_h06_asking_never_creates_a_topic() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        with pytest.raises(TopicGone, match="no topic x"):
            client.topic("x", Stop())
        named = [row for row in kafka.broker.asked(METADATA) if row["topics"]]
        assert named
        assert not any(row["allow_auto_topic_creation"] for row in named)
        client.close()


def test_a_leader_that_moves_is_found_again() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        kafka.errors.extend([NOT_LEADER, 5, 74])
        answer = client.fetch(TOPIC_PARTITION, TOPIC_ID, 0, read_committed=False, stop=Stop())
        assert answer is not None
        assert answer.records
        client.close()


def test_connections_that_break_are_opened_again() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        for offset in (0, 3, 6):
            assert client.fetch(
                TOPIC_PARTITION, TOPIC_ID, offset, read_committed=False, stop=Stop()
            )
            kafka.drop_connections()
        client.close()


def test_a_broker_that_goes_away_after_a_query_is_no_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("aiokafka").setLevel(logging.WARNING)

    async def use(settings: KafkaSettings) -> BrokerConnections:
        connections = await connect(settings)
        await connections.send_to(1, metadata_request(["t"]))
        return connections

    async def linger(connections: BrokerConnections) -> None:
        await asyncio.sleep(0.2)  # aiokafka would have logged by then
        await connections.close()

    loop = LoopThread("rlm-kafka-consumer")
    with FakeKafka().running() as kafka:
        connections = loop.run(use(kafka_settings(kafka.kafka())), Stop())
        assert kafka.broker.open_connections == 1
    while any(one.connected() for one in connections._conns.values()):
        time.sleep(0.01)
    loop.run(linger(connections), Stop())
    loop.close()
    assert not caplog.records


def test_h40_each_right_that_kafka_refuses_is_named_at_once() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        missing = "AuthorizationFailed.*: missing ACL: principal User:ANONYMOUS, operation {}, "
        kafka.metadata_errors.append(29)
        with pytest.raises(KafkaClientError, match=missing.format("Describe") + "resource Topic:t"):
            client.topic("t", Stop())
        kafka.errors.append(29)
        with pytest.raises(KafkaClientError, match=missing.format("Read") + "resource Topic:t"):
            client.fetch(TOPIC_PARTITION, TOPIC_ID, 0, read_committed=False, stop=Stop())
        kafka.offset_errors.append(29)
        with pytest.raises(KafkaClientError, match=missing.format("Describe") + "resource Topic:t"):
            client.offsets({TOPIC_PARTITION: -1}, read_committed=False, stop=Stop())
        client.close()


def test_an_absent_kafka_is_an_error_after_the_patience() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka, patience_ms=500)
    with pytest.raises(KafkaClientError, match="nothing from Kafka in 500 ms"):
        client.topics(None, Stop())
    client.close()


def test_a_topic_that_is_gone() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        assert client.fetch(TOPIC_PARTITION, TOPIC_ID, 0, read_committed=False, stop=Stop())
        kafka.topic = None
        with pytest.raises(TopicGone):
            client.fetch(TOPIC_PARTITION, TOPIC_ID, 3, read_committed=False, stop=Stop())
        client.close()


def test_a_broker_that_just_started_denies_a_topic_for_a_moment() -> None:
    with FakeKafka().running() as kafka:
        kafka.metadata_errors.extend([3, 3, 3])
        client = client_of(kafka, gone_after_ms=30_000)
        assert client.topic("t", Stop()).topic_id == TOPIC_ID
        client.close()


def test_h06_a_topic_recreated_under_its_name_is_refused() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        assert client.fetch(TOPIC_PARTITION, TOPIC_ID, 0, read_committed=False, stop=Stop())
        kafka.topic_id = bytes(15) + b"\1"
        with pytest.raises(TopicChangedError, match="recreated"):
            client.fetch(TOPIC_PARTITION, TOPIC_ID, 3, read_committed=False, stop=Stop())
        client.close()


def test_nothing_is_left_behind() -> None:
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        client.topics(None, Stop())
        assert kafka.broker.open_connections == 1
        client.close()
        deadline = time.monotonic() + 60
        while kafka.broker.open_connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "rlm-kafka-consumer" not in {one.name for one in threading.enumerate()}


def test_a_stop_during_the_first_connection_leaves_no_connection_open() -> None:
    stop = Stop()

    def stop_now(_: object) -> None:
        stop.set()  # the request is never answered

    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        kafka.broker.on(METADATA, stop_now)
        with pytest.raises(Stopped):
            client.topics(None, stop)
        deadline = time.monotonic() + 60
        while kafka.broker.open_connections:
            assert time.monotonic() < deadline, "it is open as long as the client"
            time.sleep(0.01)
        client.close()


def test_a_stop_while_connections_are_closed_leaves_none_open() -> None:
    """A broker answers nothing any more: its connections are given up, and the read ends."""
    stop = Stop()
    with FakeKafka().running() as kafka:
        client = client_of(kafka)
        client.topics(None, Stop())
        kafka.broker.on(METADATA, lambda _: None)
        ending = threading.Timer(0.2, stop.set)
        ending.start()
        with pytest.raises(Stopped):
            client.topics(None, stop)
        ending.join()
        client.close()
        deadline = time.monotonic() + 60
        while kafka.broker.open_connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)
