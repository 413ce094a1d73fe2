"""The consumer's requests byte for byte, and its answers in every version that it sends."""

from io import BytesIO
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion

from kafka_clients.broker_request import BrokerRequest
from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from kafka_protocol.frames import encode_response
from kafka_protocol.primitives import WireError
from tiered_reads.kafka_options import kafka_settings
from tiered_reads.kafka_requests import (
    NO_TOPIC_ID,
    FetchedPartition,
    fetch_request,
    list_offsets_request,
    metadata_request,
)
from tiered_reads.values import TopicPartition

TOPIC_ID = bytes(range(16))
TOPIC_PARTITION = TopicPartition("orders", 3)
TIMESTAMPS = {TOPIC_PARTITION: -1, TopicPartition("orders", 4): 17}
SETTINGS = kafka_settings({"bootstrap.servers": "a:1"})


def fetch(topic_id: bytes = TOPIC_ID) -> BrokerRequest[FetchedPartition]:
    return fetch_request(TOPIC_PARTITION, topic_id, 4711, SETTINGS, read_committed=True)


@pytest.mark.parametrize(
    ("request_", "newest", "header", "body"),
    [
        (
            fetch(),
            17,
            "0001000d0000000700016300",
            "ffffffff000001f400000001032000000100000000ffffffff02000102030405060708090a0b0c0d0e0f02"
            "00000003ffffffff0000000000001267ffffffffffffffffffffffff004000000000010100",
        ),
        (
            fetch(),
            12,
            "0001000b00000007000163",
            "ffffffff000001f400000001032000000100000000ffffffff0000000100066f7264657273000000010000"
            "0003ffffffff0000000000001267ffffffffffffffff00400000000000000000",
        ),
        (
            fetch(NO_TOPIC_ID),
            17,
            "0001000b00000007000163",
            "ffffffff000001f400000001032000000100000000ffffffff0000000100066f7264657273000000010000"
            "0003ffffffff0000000000001267ffffffffffffffff00400000000000000000",
        ),
        (
            metadata_request(["orders", "b"]),
            13,
            "0003000c0000000700016300",
            "0300000000000000000000000000000000076f726465727300000000000000000000000000000000000262"
            "00000000",
        ),
        (metadata_request(None), 13, "0003000c0000000700016300", "00000000"),
        (
            metadata_request(["orders", "b"]),
            11,
            "0003000500000007000163",
            "0000000200066f726465727300016200",
        ),
        (metadata_request(None), 5, "0003000500000007000163", "ffffffff00"),
        (
            list_offsets_request(TIMESTAMPS, read_committed=True),
            9,
            "0002000300000007000163",
            "ffffffff010000000100066f72646572730000000200000003ffffffffffffffff00000004000000000000"
            "0011",
        ),
        (
            list_offsets_request(
                {TOPIC_PARTITION: -1, TopicPartition("orders", 4): 17}, read_committed=False
            ),
            1,
            "0002000100000007000163",
            "ffffffff0000000100066f72646572730000000200000003ffffffffffffffff0000000400000000000000"
            "11",
        ),
    ],
)
def test_requests_are_these_bytes(
    request_: BrokerRequest[Any], newest: int, header: str, body: str
) -> None:
    prepared = request_.prepare({key: (0, newest) for key in (1, 2, 3)})
    assert prepared.build_request_header(7, "c").encode().hex() == header
    assert prepared.encode().hex() == body


@pytest.mark.parametrize("offered", [{}, {1: (4, 10)}, {1: (14, 18)}])
def test_a_broker_without_these_versions_is_refused(offered: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="Fetch"):
        fetch().prepare(offered)


def read(request_: BrokerRequest[Any], key: int, version: int, frame: bytes) -> Any:
    prepared = request_.prepare({key: (version, version)})
    stream = BytesIO(frame)
    assert prepared.parse_response_header(stream).correlation_id == 7
    return prepared.RESPONSE_TYPE.decode(stream)


def fetched(version: int, partitions: int = 1, error_code: int = 0) -> bytes:
    partition = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 9,
        "last_stable_offset": 8,
        "log_start_offset": 2,
        "aborted_transactions": [{"producer_id": 5, "first_offset": 4}],
        "records": b"whole batches",
    }
    topic = {"topic": "orders", "topic_id": TOPIC_ID, "partitions": [partition] * partitions}
    value = {"error_code": error_code, "responses": [topic]}
    return encode_response(FETCH, version, 7, value)[4:]


@pytest.mark.parametrize("version", [11, 13])
def test_a_fetched_partition_is_a_view_of_its_frame(version: int) -> None:
    frame = fetched(version)
    found = read(fetch(), FETCH.key, version, frame)
    assert found == FetchedPartition(
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=2,
        aborted=((5, 4),),
        records=b"whole batches",
    )
    assert isinstance(found.records, memoryview)
    assert found.records.obj is frame


@pytest.mark.parametrize("version", [11, 13])
def test_an_answer_for_other_partitions_is_an_error(version: int) -> None:
    assert read(fetch(), FETCH.key, version, fetched(version, error_code=70)).error_code == 70
    for partitions in (0, 2):
        with pytest.raises(WireError, match=f"answered with {partitions}"):
            read(fetch(), FETCH.key, version, fetched(version, partitions))
    with pytest.raises(WireError):
        read(fetch(), FETCH.key, version, fetched(version)[:-9])


@pytest.mark.parametrize("version", [5, 12])
def test_topics_with_their_leaders(version: int) -> None:
    partitions = [
        {"error_code": 0, "partition_index": 0, "leader_id": 2, "replica_nodes": [2]},
        {"error_code": 5, "partition_index": 1, "leader_id": -1},
    ]
    topic = {"name": "orders", "topic_id": TOPIC_ID, "is_internal": True, "partitions": partitions}
    frame = encode_response(METADATA, version, 7, {"topics": [topic]})[4:]
    [found] = read(metadata_request(None), METADATA.key, version, frame)
    assert (found.error_code, found.name) == (0, "orders")
    assert found.topic_id == (TOPIC_ID if version == 12 else NO_TOPIC_ID)
    assert found.leaders == {0: 2, 1: -1}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_listed_offsets(version: int) -> None:
    partitions = [
        {"partition_index": 3, "error_code": 0, "offset": 17},
        {"partition_index": 4, "error_code": 6, "offset": -1},
    ]
    frame = encode_response(
        LIST_OFFSETS, version, 7, {"topics": [{"name": "orders", "partitions": partitions}]}
    )[4:]
    found = read(
        list_offsets_request({TOPIC_PARTITION: -1}, read_committed=False),
        LIST_OFFSETS.key,
        version,
        frame,
    )
    assert found == {TOPIC_PARTITION: (0, 17), TopicPartition("orders", 4): (6, -1)}
