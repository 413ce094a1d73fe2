"""Where partitions begin and end, by read mode: what can be planned can be read."""

import logging
from collections.abc import Iterator

import pytest

from rlm.v1 import fetch_pb2 as pb
from rlm_spark.plan.positions import open_positions
from tests.tiered_reads.fake_kafka import FakeKafka
from tests.tiered_reads.fake_service import FakeService
from tiered_reads import fetch_client, kafka_client
from tiered_reads.errors import ConnectorError
from tiered_reads.values import ConnectorOptions, ReadMode, TopicPartition

TOPIC_PARTITION = TopicPartition("t", 0)
NOWHERE = TopicPartition("t", 7)
EVERY_MODE = tuple(ReadMode)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("aiokafka").setLevel(logging.NOTSET)
    fetch_client.SHARED.close_idle()
    kafka_client.SHARED.close_idle()


@pytest.fixture
def service() -> Iterator[FakeService]:
    """Remote [5, 40)."""
    with FakeService(start=5, end=60, remote_end=40).running() as running:
        yield running


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """Local [20, 60)."""
    with FakeKafka(log_start=20, end=60).running() as running:
        yield running


def options(
    mode: ReadMode, service: FakeService | None, kafka: FakeKafka | None
) -> ConnectorOptions:
    return ConnectorOptions(
        read_mode=mode,
        kafka=kafka.kafka() if kafka else {},
        service=service.connection() if service else None,
        poll_timeout_ms=60_000,
    )


def edges(
    mode: ReadMode, service: FakeService | None, kafka: FakeKafka | None
) -> tuple[int, int, list[int | None]]:
    """Earliest, latest, and the offsets for timestamps 1_010 (offset 10), 1_045 and 9_000."""
    with open_positions(options(mode, service, kafka)) as positions:
        asked = [TOPIC_PARTITION, NOWHERE]
        [earliest] = positions.earliest(asked).items()
        [latest] = positions.latest(asked).items()
        assert earliest[0] == latest[0] == TOPIC_PARTITION
        dated = [
            positions.for_timestamps({TOPIC_PARTITION: at})[TOPIC_PARTITION]
            for at in (1_010, 1_045, 9_000)
        ]
        return earliest[1], latest[1], dated


def test_each_mode_by_the_tiers_it_reads(service: FakeService, kafka: FakeKafka) -> None:
    both = (5, 60, [10, 45, None])
    assert edges(ReadMode.KAFKA_PREFERRED, service, kafka) == both
    assert edges(ReadMode.REMOTE_PREFERRED, service, kafka) == both
    assert edges(ReadMode.REMOTE_ONLY, service, kafka) == (5, 40, [10, None, None])
    assert edges(ReadMode.KAFKA_ONLY, service, kafka) == (20, 60, [20, 45, None])


def test_h17_a_reader_behind_hides_no_history(service: FakeService, kafka: FakeKafka) -> None:
    """It ends at 12, Kafka begins at 20: what lies between is asked of the leader's service."""
    with FakeService(start=5, remote_end=12).running() as reader:
        rows = (
            pb.Endpoint(grpc_address=service.address, role="broker", node_id=1),
            pb.Endpoint(grpc_address=reader.address, role="reader", node_id=-1),
        )
        service.endpoints = reader.endpoints = rows
        given = options(ReadMode.KAFKA_PREFERRED, service, kafka)
        with open_positions(given) as positions:
            assert positions.earliest([TOPIC_PARTITION]) == {TOPIC_PARTITION: 5}
            assert positions.for_timestamps({TOPIC_PARTITION: 1_015}) == {TOPIC_PARTITION: 15}
        assert reader.asked("DescribeTopics")


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("at", [-1, -2, -3, -315_619_200_000])
def test_h17_a_timestamp_before_1970_begins_with_the_history(
    service: FakeService, kafka: FakeKafka, mode: ReadMode, at: int
) -> None:
    """Negative ones are Kafka's names of offsets: -1 would be the end, others the local start."""
    with open_positions(options(mode, service, kafka)) as positions:
        first = 20 if mode is ReadMode.KAFKA_ONLY else 5
        assert positions.for_timestamps({TOPIC_PARTITION: at}) == {TOPIC_PARTITION: first}


def test_without_kafka_the_leaders_service_answers(service: FakeService) -> None:
    service.topics = ("t",)
    with open_positions(options(ReadMode.KAFKA_PREFERRED, service, None)) as positions:
        assert positions.earliest([TOPIC_PARTITION]) == {TOPIC_PARTITION: 5}
        assert positions.latest([TOPIC_PARTITION]) == {TOPIC_PARTITION: 60}
        assert positions.for_timestamps({TOPIC_PARTITION: 1_045}) == {TOPIC_PARTITION: 45}


def test_a_topic_that_is_not_tiered_has_kafkas_edges(
    service: FakeService, kafka: FakeKafka
) -> None:
    service.topics = ()
    assert edges(ReadMode.KAFKA_PREFERRED, service, kafka)[:2] == (20, 60)


def test_an_empty_remote_tier_moves_no_edge(service: FakeService, kafka: FakeKafka) -> None:
    service.start, service.remote_end = 0, -1
    assert edges(ReadMode.KAFKA_PREFERRED, service, kafka)[:2] == (20, 60)
    with open_positions(options(ReadMode.REMOTE_ONLY, service, None)) as positions:
        assert (
            positions.earliest([TOPIC_PARTITION])
            == positions.latest([TOPIC_PARTITION])
            == {TOPIC_PARTITION: 0}
        )


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_topics(service: FakeService, kafka: FakeKafka, mode: ReadMode) -> None:
    with open_positions(options(mode, service, kafka)) as positions:
        assert positions.topics(None) == {"t": (0,)}
        assert positions.topics(["t", "unknown"]) == {"t": (0,)}
        assert positions.topics([]) == {}


def test_what_the_mode_needs(service: FakeService, kafka: FakeKafka) -> None:
    with pytest.raises(ConnectorError, match=r"rlm\.endpoints"):
        open_positions(options(ReadMode.REMOTE_ONLY, None, kafka))
    with pytest.raises(ConnectorError, match=r"kafka\.bootstrap"):
        open_positions(options(ReadMode.KAFKA_ONLY, service, None))
