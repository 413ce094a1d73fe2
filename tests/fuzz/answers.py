"""Targets: answers of a broker that are changed on their way."""

import random
from typing import Any

from kafka_protocol.api_versions import REMOVED_APIS, cap_api_versions, is_offered
from kafka_protocol.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
)
from kafka_protocol.fetch import scan_fetch_response
from kafka_protocol.frames import parse_request_header, parse_response_header
from kafka_protocol.node_addresses import (
    NodeAddress,
    NodeAddresses,
    hide_node_endpoints,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_metadata,
    rewrite_node_endpoints,
)
from kafka_protocol.primitives import WireError
from kafka_protocol.produce import patch_produce_response, read_acks, usual_acks
from kafka_protocol.schema import Api, Value, decode
from tests.fuzz.case import READ, REFUSED, REQUEST, RESPONSE, Case

_LOG_START = 4_242
_PROXY = NodeAddress(host="proxy", port=9_093)
_REWRITES = {
    METADATA.key: rewrite_metadata,
    DESCRIBE_CLUSTER.key: rewrite_describe_cluster,
    FIND_COORDINATOR.key: rewrite_find_coordinator,
}


def produced(case: Case) -> str:
    """Log starts and node endpoints are changed, nothing else."""
    sample = case.corpus.any(case.rng, RESPONSE, PRODUCE)
    frame, version = case.damaged(sample), sample.version
    try:
        changed = patch_produce_response(bytearray(frame), version, lambda *_: _LOG_START, None)
        patch_produce_response(bytearray(frame), version, lambda *_: None, _nodes(case.rng))
    except WireError:
        return REFUSED
    assert len(changed) == len(frame)
    before, after = _decoded(PRODUCE, version, frame), _decoded(PRODUCE, version, bytes(changed))
    if before is not None:
        assert after is not None
        for topic in before["responses"]:
            for row in topic["partition_responses"]:
                if version >= 5 and row["log_start_offset"] >= 0:
                    row["log_start_offset"] = _LOG_START
        assert after == before
    return READ


def acks(case: Case) -> str:
    """The short way and the long way to a request's acks end at the same."""
    sample = case.corpus.any(case.rng, REQUEST, PRODUCE)
    frame = case.damaged(sample)
    if frame[:2] != b"\0\0" or not PRODUCE.versions.has(int.from_bytes(frame[2:4], "big")):
        return REFUSED  # the cutter does not ask
    usual = usual_acks(memoryview(frame), int.from_bytes(frame[2:4], "big"))
    try:
        found = read_acks(frame, parse_request_header(frame))
    except WireError:
        assert usual is None
        return REFUSED
    assert usual in (None, found)
    return READ


def addresses(case: Case) -> str:
    """Every other byte of an answer stays; a node that is left out is named nowhere."""
    api = case.rng.choice((METADATA, DESCRIBE_CLUSTER, FIND_COORDINATOR))
    sample = case.corpus.any(case.rng, RESPONSE, api)
    frame, version, nodes = case.damaged(sample), sample.version, _nodes(case.rng)
    rewrite = _REWRITES[api.key]
    try:
        same = b"".join(rewrite(frame, version, NodeAddresses(replaced={}, keeps_others=True)))
        changed = b"".join(rewrite(frame, version, nodes))
    except WireError:
        return REFUSED
    assert same == frame
    before, after = _decoded(api, version, frame), _decoded(api, version, changed)
    if before is not None:
        assert after is not None
        if api is METADATA:
            wanted = [one for one in _brokers(before) if not nodes.leaves_out(one)]
            assert _brokers(after) == wanted
            assert after["topics"] == before["topics"]
    return READ


def _brokers(value: Value) -> list[Any]:
    return [one["node_id"] for one in value["brokers"] or ()]


def endpoints(case: Case) -> str:
    """The tagged fields at the end of a Fetch answer."""
    sample = case.corpus.sample(
        FETCH, RESPONSE, case.rng.choice((16, 17, 18)), case.rng.randrange(8)
    )
    frame = bytearray(case.damaged(sample))
    try:
        position = scan_fetch_response(frame, sample.version).tags_position
    except WireError:
        position = case.rng.randrange(len(frame) + 1)
    try:
        rewrite_node_endpoints(bytearray(frame), position, _nodes(case.rng))
        hidden = frame[position:]
        hide_node_endpoints(memoryview(hidden))
    except WireError:
        return REFUSED
    assert len(hidden) == len(frame) - position
    return READ


def versions(case: Case) -> str:
    """No version is offered that would then be refused."""
    sample = case.corpus.any(case.rng, RESPONSE, API_VERSIONS)
    try:
        capped = cap_api_versions(case.damaged(sample), sample.version)
    except WireError:
        return REFUSED
    _, position = parse_response_header(capped, API_VERSIONS, sample.version)
    is_refusal = capped[position : position + 2] == b"\0\x23"
    body, _ = decode(API_VERSIONS.response, 0 if is_refusal else sample.version, capped, position)
    for offer in body["api_keys"]:
        assert offer["api_key"] not in REMOVED_APIS
        if offer["min_version"] <= offer["max_version"]:
            assert is_offered(offer["api_key"], offer["min_version"])
            assert is_offered(offer["api_key"], offer["max_version"])
    return READ


def _nodes(rng: random.Random) -> NodeAddresses:
    return NodeAddresses(
        replaced=dict.fromkeys(range(rng.randrange(90)), _PROXY),
        keeps_others=rng.random() < 0.5,
    )


def _decoded(api: Api, version: int, frame: bytes) -> Value | None:
    """None where the tables, which read more than is changed, refuse it."""
    try:
        _, position = parse_response_header(frame, api, version)
        return decode(api.response, version, frame, position)[0]
    except WireError:
        return None
