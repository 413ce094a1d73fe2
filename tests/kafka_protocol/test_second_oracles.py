"""A handful of messages through other people's codecs: kio and kafka-python."""

import io
import warnings

import pytest
from kio.schema.fetch.v17.response import FetchResponse as KioFetchResponse
from kio.schema.metadata.v12.response import MetadataResponse as KioMetadataResponse
from kio.serial import entity_reader, entity_writer

from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from kafka_protocol.fetch import (
    SplicedPartition,
    patch_fetch_request,
    scan_fetch_request,
    scan_fetch_response,
    splice_fetch_response,
)
from kafka_protocol.frames import encode_request, encode_response, parse_request_header
from kafka_protocol.schema import encode

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer import FetchRequest as PythonFetchRequest
    from kafka.protocol.consumer import FetchResponse as PythonFetchResponse
    from kafka.protocol.consumer import ListOffsetsResponse as PythonListOffsetsResponse

TOPIC_ID = bytes(range(1, 17))
HEADER_V1_SIZE_BYTES = 5
REMOTE = SplicedPartition(
    error_code=0,
    high_watermark=100,
    last_stable_offset=90,
    log_start_offset=3,
    aborted_transactions=((7, 4),),
    preferred_read_replica=-1,
    records=[b"remote ", b"records"],
)


def out_of_range(**topic: object) -> dict[str, object]:
    partition = {"partition_index": 2, "error_code": 1, "high_watermark": -1, "records": b""}
    return {"responses": [{**topic, "partitions": [partition]}]}


def test_kio_reads_a_spliced_fetch_response() -> None:
    frame = encode_response(FETCH, 17, 1, out_of_range(topic_id=TOPIC_ID))[4:]
    pieces = splice_fetch_response(frame, scan_fetch_response(frame, 17), {(0, 0): REMOTE})
    body = b"".join(pieces)[4 + HEADER_V1_SIZE_BYTES :]
    read, size = entity_reader(KioFetchResponse)(body, 0)
    assert size == len(body)
    (partition,) = read.responses[0].partitions
    assert (partition.partition_index, partition.error_code) == (2, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (100, 90)
    assert (partition.log_start_offset, partition.records) == (3, b"remote records")
    assert partition.aborted_transactions is not None
    (aborted,) = partition.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (7, 4)
    written = io.BytesIO()
    entity_writer(KioFetchResponse)(written, read)
    assert written.getvalue() == body


def test_kio_reads_metadata_as_we_write_it() -> None:
    broker = {"node_id": 1, "host": "h", "port": 9092}
    partition = {"partition_index": 0, "leader_id": 1, "leader_epoch": 5, "replica_nodes": [1, 2]}
    topic = {"name": "t", "topic_id": TOPIC_ID, "partitions": [partition]}
    encoded = encode(METADATA.response, 12, {"brokers": [broker], "topics": [topic]})
    read, size = entity_reader(KioMetadataResponse)(encoded, 0)
    assert size == len(encoded)
    assert (read.brokers[0].host, read.brokers[0].rack, read.cluster_id) == ("h", None, None)
    assert read.topics[0].topic_id is not None
    assert read.topics[0].topic_id.bytes == TOPIC_ID
    assert read.topics[0].partitions[0].replica_nodes == (1, 2)
    written = io.BytesIO()
    entity_writer(KioMetadataResponse)(written, read)
    assert written.getvalue() == encoded


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12])
def test_kafka_python_reads_a_patched_fetch_request(version: int) -> None:
    partition = {"partition": 1, "fetch_offset": 9, "partition_max_bytes": 1 << 20}
    value = {"max_wait_ms": 500, "topics": [{"topic": "t", "partitions": [partition]}]}
    frame = encode_request(FETCH, version, 5, "c", value)[4:]
    header = parse_request_header(frame)
    request = scan_fetch_request(frame, header)
    patched = patch_fetch_request(
        frame,
        request,
        sessionless=True,
        max_wait_ms=0,
        replacements={request.topics[0].partitions[0]: (77, 1)},
    )
    read = PythonFetchRequest.decode(bytes(patched[header.body_offset :]), version=version)
    assert (read.max_wait_ms, read.session_id, read.session_epoch) == (0, 0, -1)
    (asked,) = read.topics[0].partitions
    assert (asked.partition, asked.fetch_offset, asked.partition_max_bytes) == (1, 77, 1)


@pytest.mark.parametrize("version", [4, 5, 7, 11])
def test_kafka_python_reads_a_spliced_fetch_response(version: int) -> None:
    frame = encode_response(FETCH, version, 1, out_of_range(topic="t"))[4:]
    pieces = splice_fetch_response(frame, scan_fetch_response(frame, version), {(0, 0): REMOTE})
    read = PythonFetchResponse.decode(b"".join(pieces)[8:], version=version)
    (partition,) = read.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (0, 100)
    assert partition.records == b"remote records"
    assert partition.aborted_transactions[0].first_offset == 4


@pytest.mark.parametrize("version", range(1, 11))
def test_kafka_python_reads_list_offsets_as_we_write_it(version: int) -> None:
    partition = {"partition_index": 1, "offset": 9, "timestamp": 5}
    value = {"topics": [{"name": "t", "partitions": [partition]}]}
    encoded = encode(LIST_OFFSETS.response, version, value)
    read = PythonListOffsetsResponse.decode(encoded, version=version)
    assert read.topics[0].partitions[0].offset == 9
    assert read.topics[0].partitions[0].timestamp == 5
