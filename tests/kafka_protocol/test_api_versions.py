"""What the proxy offers: every version it reads is handled, the others are not offered."""

import random

import pytest

from kafka_protocol.api_versions import READ_APIS, cap_api_versions, is_offered, refuse_api_versions
from kafka_protocol.apis import API_VERSIONS, APIS, DELETE_TOPICS
from kafka_protocol.fetch import scan_fetch_request, scan_fetch_response
from kafka_protocol.frames import encode_response, parse_request_header
from kafka_protocol.primitives import WireError
from kafka_protocol.produce import patch_produce_response, read_acks
from kafka_protocol.schema import decode, encode
from tests.kafka_protocol.oracle import UNKNOWN_TAGS, Json, Oracle, version_range

VERSIONS = range(5)


def offer(key: int, low: int, high: int) -> Json:
    return {"ApiKey": key, "MinVersion": low, "MaxVersion": high}


def offers_of(frame: bytes, version: int) -> dict[int, tuple[int, int]]:
    body, end = decode(API_VERSIONS.response, version, frame, 4)
    assert end == len(frame)
    return {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}


def all_offers_of_kafka(oracle: Oracle) -> list[Json]:
    return [
        offer(spec["apiKey"], *version_range(spec["validVersions"]))
        for spec in oracle.messages.values()
        if spec["type"] == "request" and spec["validVersions"] != "none"
    ]


def test_every_offered_version_of_a_read_api_is_handled(oracle: Oracle) -> None:
    """Reads and scans what Kafka's JSON says that each version on offer looks like."""
    frame = oracle.response_frame("ApiVersions", 4, {"ApiKeys": all_offers_of_kafka(oracle)})
    offered = offers_of(cap_api_versions(frame, 4), 4)
    handled = 0
    for key in READ_APIS:
        api = APIS[key]
        low, high = offered[key]
        spec = oracle.messages[f"{api.name}Request"]
        assert (low, high) == version_range(spec["validVersions"]), f"{api.name}: versions lost"
        for version in range(low, high + 1):
            rng = random.Random(f"{key} {version}")
            request = oracle.message(f"{api.name}Request", version).generate(rng)
            response = oracle.message(f"{api.name}Response", version).generate(rng)
            asked = oracle.request_frame(api.name, version, request)
            answered = oracle.response_frame(api.name, version, response)
            header = parse_request_header(asked)
            assert decode(api.request, version, asked, header.body_offset)[1] == len(asked)
            if api.name == "Fetch":
                scan_fetch_request(asked, header)
                scan_fetch_response(answered, version)
            elif api.name == "Produce":
                assert read_acks(asked, header) == request["Acks"]
                patch_produce_response(answered, version, lambda *_: 0)
            elif api.name == "ApiVersions":
                cap_api_versions(answered, version)
            assert encode(api.response, version, {})
            assert is_offered(key, version)
            handled += 1
    assert handled > 70


@pytest.mark.parametrize("version", VERSIONS)
def test_ranges_are_intersected_and_the_rest_stays(oracle: Oracle, version: int) -> None:
    value: Json = {
        "ErrorCode": 0,
        "ApiKeys": [
            offer(0, 0, 99),
            offer(1, 0, 99),
            offer(2, 0, 3),
            offer(3, 5, 8),
            offer(23, 0, 1),
            offer(18, 0, 99),
            offer(8, 2, 42),
            offer(20_000, 0, 7),
        ],
        "ThrottleTimeMs": 7,
    }
    if version >= 3:
        value["FinalizedFeaturesEpoch"] = 12
        value["SupportedFeatures"] = [{"Name": "x", "MinVersion": 0, "MaxVersion": 2}]
        value[UNKNOWN_TAGS] = [(66, b"new")]
        value["ApiKeys"][6][UNKNOWN_TAGS] = [(67, b"more")]
    capped = cap_api_versions(oracle.response_frame("ApiVersions", version, value), version)
    last = value["ApiKeys"][6]
    value["ApiKeys"] = [
        offer(0, 0, 13),
        offer(1, 4, 18),
        offer(2, 1, 3),
        offer(3, 5, 8),
        offer(18, 0, 5),
        last,
        offer(20_000, 0, 7),
    ]
    assert capped == oracle.response_frame("ApiVersions", version, value)


def test_the_oldest_delete_topics_of_brokers_before_kafka_4_is_offered(oracle: Oracle) -> None:
    """Clients of 0.10 send it; the answer has no throttle time yet."""
    frame = oracle.response_frame("ApiVersions", 0, {"ApiKeys": [offer(20, 0, 6)]})
    assert offers_of(cap_api_versions(frame, 0), 0) == {20: (0, 6)}
    assert is_offered(20, 0)
    asked = b"\0\0\0\1\0\6orders\0\0\0\5"
    request, end = decode(DELETE_TOPICS.request, 0, asked)
    assert (request["topic_names"], request["timeout_ms"], end) == (["orders"], 5, len(asked))
    value = {"responses": [{"name": "orders", "error_code": 29}], "throttle_time_ms": 9}
    assert encode(DELETE_TOPICS.response, 0, value) == b"\0\0\0\1\0\6orders\0\x1d"


@pytest.mark.parametrize("version", VERSIONS)
def test_h19_share_fetches_are_not_offered(oracle: Oracle, version: int) -> None:
    value = {"ApiKeys": [offer(76, 1, 1), offer(77, 1, 1), offer(78, 1, 2), offer(79, 1, 2)]}
    frame = oracle.response_frame("ApiVersions", version, value)
    assert offers_of(cap_api_versions(frame, version), version) == {76: (1, 1), 77: (1, 1)}
    assert not is_offered(78, 1)
    assert not is_offered(79, 2)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 9])
def test_an_unsupported_version_answer_has_the_body_of_v0(oracle: Oracle, version: int) -> None:
    value = {"ErrorCode": 35, "ApiKeys": [offer(18, 0, 99)]}
    frame = oracle.response_frame("ApiVersions", 0, value)
    value["ApiKeys"] = [offer(18, 0, 5)]
    assert cap_api_versions(frame, version) == oracle.response_frame("ApiVersions", 0, value)
    old_broker = oracle.response_frame("ApiVersions", 0, {"ErrorCode": 35})
    assert cap_api_versions(old_broker, version) == old_broker


def test_a_newer_request_is_refused_as_a_broker_does(oracle: Oracle) -> None:
    expected = oracle.response_frame(
        "ApiVersions", 0, {"ErrorCode": 35, "ApiKeys": [offer(18, 0, 5)]}
    )
    assert refuse_api_versions(77)[4:] == expected


def test_versions_that_are_not_offered() -> None:
    assert is_offered(1, 18)
    assert not is_offered(1, 19)
    assert not is_offered(1, 3)
    assert is_offered(8, 300)


def test_produce_keeps_version_0_for_old_librdkafka() -> None:
    """KAFKA-18659: Kafka 4 offers Produce from 0 though it speaks 3 and newer."""
    body = {"api_keys": [{"api_key": 0, "min_version": 0, "max_version": 13}]}
    frame = encode_response(API_VERSIONS, 3, 1, body)[4:]
    assert offers_of(cap_api_versions(frame, 3), 3) == {0: (0, 13)}


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_answers_are_a_wire_error(oracle: Oracle, version: int) -> None:
    value = {"ApiKeys": [offer(1, 0, 18), offer(8, 0, 3)]}
    frame = oracle.response_frame("ApiVersions", version, value)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            cap_api_versions(frame[:size], version)
    with pytest.raises(WireError, match="bytes left"):
        cap_api_versions(frame + b"x", version)
