"""Acks of Produce requests and log start offsets of their answers, all versions."""

import copy
import random
from typing import Any

import pytest

from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.produce import LogStartLookup, patch_produce_response, read_acks, usual_acks
from tests.kafka_protocol.oracle import Oracle

LogStarts = dict[tuple[str | None, bytes | None, int], int]
VERSIONS = range(14)  # v0 to v2 are offered by brokers though not spoken (KAFKA-18659)


def lookup_in(wanted: LogStarts) -> LogStartLookup:
    return lambda name, topic_id, partition: wanted.get((name, topic_id, partition))


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_all_versions(oracle: Oracle, version: int) -> None:
    for acks in (0, 1, -1):
        for transactional_id in (None, "", "tx", "t" * 200):
            value = {"TransactionalId": transactional_id, "Acks": acks, "TimeoutMs": 9}
            frame = oracle.request_frame("Produce", version, value)
            header = parse_request_header(frame)
            assert read_acks(frame, header) == acks
            end = len(frame) - len(oracle.message("ProduceRequest", version).encode(value))
            end += {True: 2}.get(version < 3, 0)
            with pytest.raises(WireError):
                read_acks(frame[: end - 1], header)
            is_usual = transactional_id is None or version < 3
            assert usual_acks(memoryview(frame), version) == (acks if is_usual else None)
            assert usual_acks(memoryview(frame)[: end - 1], version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_usual_acks_are_those_that_are_read_with_care(oracle: Oracle, version: int) -> None:
    rng = random.Random(version)
    found = 0
    for _ in range(2000):
        frame = bytearray(oracle.request_frame("Produce", version, {"Acks": -1, "TimeoutMs": 9}))
        for at in rng.sample(range(8, len(frame)), rng.randrange(3)):
            frame[at] = rng.choice((0, 1, 255, rng.randrange(256)))
        usual = usual_acks(memoryview(frame), version)
        if usual is not None:
            found += 1
            assert read_acks(frame, parse_request_header(frame)) == usual
    assert found > 500


def test_acks_of_an_unknown_version_are_a_wire_error(oracle: Oracle) -> None:
    frame = bytearray(oracle.request_frame("Produce", 13, {"Acks": 1, "TimeoutMs": 9}))
    frame[3] = 14
    with pytest.raises(WireError, match="v14 request"):
        read_acks(frame, parse_request_header(frame))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("version", VERSIONS)
def test_h22_log_start_is_overwritten_where_wanted_and_given(
    oracle: Oracle, version: int, kind: type[Buffer]
) -> None:
    for seed in range(10):
        rng = random.Random(f"{version} {seed}")
        value = oracle.message("ProduceResponse", version).generate(rng)
        expected = copy.deepcopy(value)
        wanted: LogStarts = {}
        for topic in expected["Responses"]:
            for partition in topic["PartitionResponses"]:
                key = (topic.get("Name"), topic.get("TopicId"), partition["Index"])
                if rng.random() < 0.6:
                    wanted[key] = rng.randrange(2**60)
        for topic in expected["Responses"]:
            for partition in topic["PartitionResponses"]:
                key = (topic.get("Name"), topic.get("TopicId"), partition["Index"])
                if partition.get("LogStartOffset", -1) >= 0 and key in wanted:
                    partition["LogStartOffset"] = wanted[key]
        frame = kind(oracle.response_frame("Produce", version, value))
        patched = patch_produce_response(frame, version, lookup_in(wanted))
        assert patched == oracle.response_frame("Produce", version, expected)
        if isinstance(frame, bytearray):
            assert patched is frame


@pytest.mark.parametrize("version", range(5, 14))
def test_h22_answers_with_and_without_errors_are_mixed(oracle: Oracle, version: int) -> None:
    for seed in range(20):
        rng = random.Random(f"{version} {seed}")
        value = oracle.message("ProduceResponse", version).generate(rng)
        for topic in value["Responses"]:
            for at, partition in enumerate(topic["PartitionResponses"]):
                if rng.random() < 0.8:
                    usual: dict[str, Any] = {
                        **{"Index": at, "BaseOffset": at + 5, "LogStartOffset": at},
                        **{"ErrorCode": 0, "LogAppendTimeMs": -1},
                        **({"RecordErrors": [], "ErrorMessage": None} if version >= 8 else {}),
                    }
                    topic["PartitionResponses"][at] = usual
                    assert partition.keys() >= usual.keys()
        frame = oracle.response_frame("Produce", version, value)
        for topic in value["Responses"]:
            for partition in topic["PartitionResponses"]:
                if partition["LogStartOffset"] >= 0:
                    partition["LogStartOffset"] = 77
        patched = patch_produce_response(frame, version, lambda *_: 77)
        assert patched == oracle.response_frame("Produce", version, value)


@pytest.mark.parametrize("version", range(5, 14))
def test_cut_answers_are_a_wire_error(oracle: Oracle, version: int) -> None:
    value = oracle.message("ProduceResponse", version).generate(random.Random(version + 100))
    frame = oracle.response_frame("Produce", version, value)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            patch_produce_response(frame[:size], version, lambda *_: 1)
    with pytest.raises(WireError, match="bytes left"):
        patch_produce_response(frame + b"x", version, lambda *_: 1)


def test_another_version_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="v14 response"):
        patch_produce_response(bytes(40), 14, lambda *_: 1)
