"""Scanning and patching Fetch requests of all versions, judged by the JSON oracle."""

import copy
import random

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch import (
    FetchPartition,
    FetchRequest,
    patch_fetch_request,
    scan_fetch_request,
)
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import WireError
from tests.kafka_protocol.oracle import Json, Oracle

VERSIONS = range(4, 19)
SEEDS = range(15)


def scan(frame: bytes) -> FetchRequest:
    return scan_fetch_request(frame, parse_request_header(frame))


def generate(oracle: Oracle, version: int, seed: int | str) -> Json:
    return oracle.message("FetchRequest", version).generate(random.Random(f"{version} {seed}"))


def replica_id(value: Json, version: int) -> int:
    found: int = value["ReplicaId"] if version <= 14 else value["ReplicaState"]["ReplicaId"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_scan_finds_what_was_asked(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        value = generate(oracle, version, seed)
        found = scan(oracle.request_frame("Fetch", version, value))
        assert found.api_version == version
        assert found.replica_id == replica_id(value, version)
        assert (found.max_wait_ms, found.min_bytes, found.max_bytes, found.isolation_level) == (
            value["MaxWaitMs"],
            value["MinBytes"],
            value["MaxBytes"],
            value["IsolationLevel"],
        )
        assert found.session_id == value.get("SessionId", 0)
        assert found.session_epoch == value.get("SessionEpoch", -1)
        assert found.rack_id == value.get("RackId", "")
        assert [(topic.name, topic.topic_id) for topic in found.topics] == [
            (topic.get("Topic"), topic.get("TopicId")) for topic in value["Topics"]
        ]
        for topic, asked in zip(found.topics, value["Topics"], strict=True):
            assert [partition[:5] for partition in topic.partitions] == [
                (
                    one["Partition"],
                    one.get("CurrentLeaderEpoch", -1),
                    one["FetchOffset"],
                    one.get("LastFetchedEpoch", -1),
                    one["PartitionMaxBytes"],
                )
                for one in asked["Partitions"]
            ]


@pytest.mark.parametrize("version", VERSIONS)
def test_h20_patches_change_exactly_their_fields(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        rng = random.Random(f"patch {version} {seed}")
        value = generate(oracle, version, seed)
        frame = oracle.request_frame("Fetch", version, value)
        expected = copy.deepcopy(value)
        if version >= 7:
            expected.update(SessionId=0, SessionEpoch=-1)
        expected.update(MaxWaitMs=0, MaxBytes=12_345)
        hide_rack = rng.random() < 0.5
        if hide_rack and version >= 11:
            expected["RackId"] = "\0" * len(expected["RackId"].encode())
        request = scan(frame)
        replacements: dict[FetchPartition, tuple[int, int]] = {}
        leader_epochs: dict[FetchPartition, int] = {}
        for t, topic in enumerate(expected["Topics"]):
            for p, partition in enumerate(topic["Partitions"]):
                one = request.topics[t].partitions[p]
                if rng.random() < 0.5:
                    replacements[one] = (rng.randrange(2**62), 1)
                    partition["FetchOffset"], partition["PartitionMaxBytes"] = replacements[one]
                    if version >= 12:
                        partition["LastFetchedEpoch"] = -1
                if rng.random() < 0.5:
                    leader_epochs[one] = rng.randrange(2**31)
                    if version >= 9:
                        partition["CurrentLeaderEpoch"] = leader_epochs[one]
        patched = patch_fetch_request(
            frame,
            request,
            sessionless=True,
            max_wait_ms=0,
            max_bytes=12_345,
            replacements=replacements,
            leader_epochs=leader_epochs,
            hide_rack=hide_rack,
        )
        assert patched == oracle.request_frame("Fetch", version, expected)


@pytest.mark.parametrize("version", range(12, 19))
def test_h37_a_patched_offset_takes_the_last_fetched_epoch_away(
    oracle: Oracle, version: int
) -> None:
    one = {"Partition": 0, "FetchOffset": 5, "LastFetchedEpoch": 3, "PartitionMaxBytes": 9}
    topic = {"Topic": "t", "TopicId": bytes(range(16)), "Partitions": [one, one]}
    value = {"MaxWaitMs": 500, "MinBytes": 1, "Topics": [topic]}
    frame = oracle.request_frame("Fetch", version, value)
    request = scan(frame)
    replacements = {request.topics[0].partitions[1]: (70, 1)}
    patched = patch_fetch_request(
        frame, request, sessionless=True, max_wait_ms=None, replacements=replacements
    )
    found = scan(bytes(patched)).topics[0].partitions
    assert [(one.fetch_offset, one.last_fetched_epoch) for one in found] == [(5, 3), (70, -1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_patch_is_an_equal_copy(oracle: Oracle, version: int) -> None:
    frame = bytearray(oracle.request_frame("Fetch", version, generate(oracle, version, 0)))
    patched = patch_fetch_request(
        frame, scan(bytes(frame)), sessionless=False, max_wait_ms=None, replacements={}
    )
    assert patched == frame
    assert patched is not frame


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_or_damaged_requests_are_a_wire_error(oracle: Oracle, version: int) -> None:
    rng = random.Random(version)
    frame = oracle.request_frame("Fetch", version, generate(oracle, version, "cut"))
    for size in range(len(frame)):
        with pytest.raises(WireError):
            scan(frame[:size])
    with pytest.raises(WireError, match="1 bytes left"):
        scan(frame + b"\0")
    for _ in range(500):
        damaged = bytearray(frame)
        damaged[rng.randrange(4, len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF))
        try:
            scan(bytes(damaged))
        except WireError:
            continue


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_asked_and_a_thousand_partitions(oracle: Oracle, version: int) -> None:
    none = oracle.request_frame("Fetch", version, {"MaxWaitMs": 500, "MinBytes": 1})
    assert scan(none).topics == ()
    partitions = [
        {"Partition": n, "FetchOffset": n * 10, "PartitionMaxBytes": 1 << 20} for n in range(1000)
    ]
    value = {
        "MaxWaitMs": 500,
        "MinBytes": 1,
        "Topics": [{"Topic": "t", "TopicId": bytes(range(16)), "Partitions": partitions}],
    }
    (topic,) = scan(oracle.request_frame("Fetch", version, value)).topics
    assert [one.fetch_offset for one in topic.partitions] == list(range(0, 10_000, 10))


def test_h21_replica_id_is_read_from_field_and_from_tag(oracle: Oracle) -> None:
    base = {"MaxWaitMs": 500, "MinBytes": 1}
    follower = {"ReplicaState": {"ReplicaId": 3, "ReplicaEpoch": 9}}
    assert scan(oracle.request_frame("Fetch", 14, {**base, "ReplicaId": 3})).replica_id == 3
    assert scan(oracle.request_frame("Fetch", 14, base)).replica_id == -1
    assert scan(oracle.request_frame("Fetch", 15, {**base, **follower})).replica_id == 3
    assert scan(oracle.request_frame("Fetch", 15, base)).replica_id == -1


def test_every_version_of_the_table_is_scanned_and_no_other(oracle: Oracle) -> None:
    assert list(VERSIONS) == list(range(FETCH.versions.low, FETCH.versions.high + 1))
    frame = bytearray(oracle.request_frame("Fetch", 18, {"MaxWaitMs": 1, "MinBytes": 1}))
    frame[3] = 19
    with pytest.raises(WireError, match="v19 request: only"):
        scan(bytes(frame))
