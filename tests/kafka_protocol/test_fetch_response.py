"""Scanning and splicing Fetch responses of all versions, judged by the JSON oracle."""

import copy
import random
from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.fetch import (
    PatchedPartition,
    SplicedPartition,
    aborted_transactions,
    scan_fetch_response,
    splice_fetch_response,
)
from kafka_protocol.primitives import Buffer, WireError
from tests.kafka_protocol.oracle import UNKNOWN_TAGS, Json, Oracle

VERSIONS = range(4, 19)
FLEXIBLE = range(12, 19)
SEEDS = range(15)
NOT_DIVERGING = {"Epoch": -1, "EndOffset": -1}


def generate(oracle: Oracle, version: int, seed: int | str) -> Json:
    return oracle.message("FetchResponse", version).generate(random.Random(f"{version} {seed}"))


def joined(pieces: list[Buffer]) -> bytes:
    """The frame of these pieces, its length checked and taken off."""
    whole = b"".join(pieces)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


def spliced_value(spliced: SplicedPartition, broker: Json, version: int) -> Json:
    """What the oracle should encode for a replaced partition."""
    aborted, diverging = spliced.aborted_transactions, spliced.diverging_epoch
    tagged: Json = {}
    if version in FLEXIBLE and diverging is not None:
        tagged["DivergingEpoch"] = {"Epoch": diverging[0], "EndOffset": diverging[1]}
    return {
        **tagged,
        "PartitionIndex": broker["PartitionIndex"],
        "ErrorCode": spliced.error_code,
        "HighWatermark": spliced.high_watermark,
        "LastStableOffset": spliced.last_stable_offset,
        "LogStartOffset": spliced.log_start_offset,
        "AbortedTransactions": None
        if aborted is None
        else [{"ProducerId": pid, "FirstOffset": first} for pid, first in aborted],
        "PreferredReadReplica": spliced.preferred_read_replica,
        "Records": b"".join(spliced.records),
    }


def random_splice(rng: random.Random) -> SplicedPartition:
    aborted: Any = rng.choice((None, (), ((5, 10),), ((5, 10), (2**40, 12), (7, 2**62))))
    records = [
        rng.randbytes(rng.choice((0, 1, 100, 126, 70_000))) for _ in range(rng.randint(0, 3))
    ]
    return SplicedPartition(
        error_code=rng.choice((0, 6)),
        high_watermark=rng.randrange(2**62),
        last_stable_offset=rng.randrange(2**62),
        log_start_offset=rng.randrange(1000),
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=records,
        diverging_epoch=rng.choice((None, (0, 0), (rng.randrange(2**31), rng.randrange(2**62)))),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_scan_finds_what_was_answered(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        value = generate(oracle, version, seed)
        frame = oracle.response_frame("Fetch", version, value)
        found = scan_fetch_response(frame, version)
        assert (found.correlation_id, found.throttle_time_ms) == (77, value["ThrottleTimeMs"])
        assert found.error_code == value.get("ErrorCode", 0)
        assert found.session_id == value.get("SessionId", 0)
        assert [(topic.name, topic.topic_id) for topic in found.topics] == [
            (topic.get("Topic"), topic.get("TopicId")) for topic in value["Responses"]
        ]
        for topic, answered in zip(found.topics, value["Responses"], strict=True):
            for partition, one in zip(topic.partitions, answered["Partitions"], strict=True):
                assert partition[:6] == (
                    one["PartitionIndex"],
                    one["ErrorCode"],
                    one["HighWatermark"],
                    one["LastStableOffset"],
                    one.get("LogStartOffset", -1),
                    one.get("PreferredReadReplica", -1),
                )
                diverging = one.get("DivergingEpoch", NOT_DIVERGING)
                assert partition.diverging_epoch == (
                    None
                    if diverging == NOT_DIVERGING  # the default: not on the wire
                    else (diverging["Epoch"], diverging["EndOffset"])
                )
                size = partition.records_size
                assert (None if size == -1 else size) == (
                    None if one["Records"] is None else len(one["Records"])
                )
                assert aborted_transactions(frame, partition, version) == tuple(
                    (row["ProducerId"], row["FirstOffset"])
                    for row in one["AbortedTransactions"] or ()
                )
                records = frame[partition.records_position :][: max(size, 0)]
                assert records == (one["Records"] or b"")
                struct_fields = oracle.messages["FetchResponse"]["fields"][3]["fields"]
                assert struct_fields[2]["name"] == "Partitions"
                message = oracle.message("FetchResponse", version)
                assert frame[partition.start : partition.end] == message._struct(
                    struct_fields[2]["fields"], one
                )


@pytest.mark.parametrize("version", VERSIONS)
def test_splice_replaces_exactly_the_given_partitions(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        rng = random.Random(f"splice {version} {seed}")
        value = generate(oracle, version, seed)
        expected = copy.deepcopy(value)
        replacements = {}
        for t, topic in enumerate(expected["Responses"]):
            for p, broker in enumerate(topic["Partitions"]):
                if rng.random() < 0.6:
                    broker["ErrorCode"] = value["Responses"][t]["Partitions"][p]["ErrorCode"] = (
                        rng.choice((0, 1))
                    )
                    replacements[t, p] = random_splice(rng)
                    topic["Partitions"][p] = spliced_value(replacements[t, p], broker, version)
        frame = oracle.response_frame("Fetch", version, value)
        before = bytes(frame)
        shuffled = dict(rng.sample(list(replacements.items()), len(replacements)))
        pieces = splice_fetch_response(frame, scan_fetch_response(frame, version), shuffled)
        assert joined(pieces) == oracle.response_frame("Fetch", version, expected)
        assert frame == before


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("version", VERSIONS)
def test_h22_log_start_is_overwritten_where_the_broker_gave_one(
    oracle: Oracle, version: int, kind: type[Buffer]
) -> None:
    for seed in SEEDS:
        value = generate(oracle, version, seed)
        expected = copy.deepcopy(value)
        replacements = {}
        for t, topic in enumerate(expected["Responses"]):
            for p, one in enumerate(topic["Partitions"]):
                replacements[t, p] = PatchedPartition(
                    log_start_offset=4_711 + p, preferred_read_replica=-1 if p else None
                )
                if version >= 5 and one["LogStartOffset"] >= 0:
                    one["LogStartOffset"] = 4_711 + p
                if version >= 11 and p:
                    one["PreferredReadReplica"] = -1
        expected["ThrottleTimeMs"] = 250
        frame = kind(oracle.response_frame("Fetch", version, value))
        pieces = splice_fetch_response(
            frame, scan_fetch_response(frame, version), replacements, throttle_time_ms=250
        )
        assert joined(pieces) == oracle.response_frame("Fetch", version, expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_the_broker_are_cut_and_all_else_stays(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        value = generate(oracle, version, seed)
        expected = copy.deepcopy(value)
        rng, replacements = random.Random(f"cut {version} {seed}"), {}
        for t, topic in enumerate(expected["Responses"]):
            for p, one in enumerate(topic["Partitions"]):
                if one["Records"] is not None:
                    size = rng.randint(0, len(one["Records"]))
                    one["Records"] = one["Records"][:size]
                    start = rng.choice((None, 4_711))
                    if start is not None and version >= 5 and one["LogStartOffset"] >= 0:
                        one["LogStartOffset"] = start
                    replacements[t, p] = PatchedPartition(
                        log_start_offset=start, records_size_bytes=size
                    )
        frame = bytearray(oracle.response_frame("Fetch", version, value))
        pieces = splice_fetch_response(frame, scan_fetch_response(frame, version), replacements)
        assert joined(pieces) == oracle.response_frame("Fetch", version, expected)


def answer(records: bytes | None, error_code: int = 0, **more: Any) -> Json:
    return {
        "PartitionIndex": 1,
        "ErrorCode": error_code,
        "HighWatermark": 9,
        "LastStableOffset": 8,
        "LogStartOffset": 2,
        "AbortedTransactions": None,
        "PreferredReadReplica": -1,
        "Records": records,
        **more,
    }


def response(*partitions: Json, **more: Any) -> Json:
    topic = {"Topic": "t", "TopicId": b"i" * 16, "Partitions": list(partitions)}
    return {"Responses": [topic], **more}


def test_splice_copies_no_records_of_either_side(oracle: Oracle) -> None:
    value = response(answer(b"b" * 100_000), answer(None, error_code=1), answer(b"c" * 100_000))
    frame = bytearray(oracle.response_frame("Fetch", 17, value))
    remote = memoryview(b"r" * 200_000)
    spliced = SplicedPartition(
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=(),
        preferred_read_replica=-1,
        records=[remote[:150_000], remote[150_000:]],
    )
    pieces = splice_fetch_response(frame, scan_fetch_response(frame, 17), {(0, 1): spliced})
    big = [piece for piece in pieces if len(piece) > 1000]
    assert all(isinstance(piece, memoryview) for piece in big)
    assert [piece.obj for piece in big if isinstance(piece, memoryview)] == [
        frame,
        remote.obj,
        remote.obj,
        frame,
    ]
    assert sum(len(piece) for piece in pieces if piece not in big) < 200


@pytest.mark.parametrize("error_code", [0, 1])
@pytest.mark.parametrize("version", [12, 15, 18])
def test_h37_tags_of_a_replaced_answer_go_as_the_client_did_not_ask_for_it(
    oracle: Oracle, version: int, error_code: int
) -> None:
    tagged: Json = {
        "CurrentLeader": {"LeaderId": 3, "LeaderEpoch": 4},
        "DivergingEpoch": {"Epoch": 2, "EndOffset": 100},
        UNKNOWN_TAGS: [(90, b"new")],
    }
    remote = SplicedPartition(
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=2,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=[b"old"],
    )
    ours = replace(remote, records=(), diverging_epoch=(1, 50))
    frame = oracle.response_frame("Fetch", version, response(answer(b"", error_code, **tagged)))
    found = scan_fetch_response(frame, version)
    assert found.topics[0].partitions[0].diverging_epoch == (2, 100)
    expected = oracle.response_frame("Fetch", version, response(answer(b"old")))
    assert joined(splice_fetch_response(frame, found, {(0, 0): remote})) == expected
    diverging: Json = {"DivergingEpoch": {"Epoch": 1, "EndOffset": 50}}
    expected = oracle.response_frame("Fetch", version, response(answer(b"", **diverging)))
    assert joined(splice_fetch_response(frame, found, {(0, 0): ours})) == expected


def test_node_endpoints_and_unknown_tags_at_the_end_stay(oracle: Oracle) -> None:
    endpoints = [{"NodeId": 2, "Host": "h", "Port": 9, "Rack": None}]
    value = response(answer(b"x"), NodeEndpoints=endpoints, **{UNKNOWN_TAGS: [(77, b"tail")]})
    frame = oracle.response_frame("Fetch", 16, value)
    found = scan_fetch_response(frame, 16)
    pieces = splice_fetch_response(frame, found, {(0, 0): PatchedPartition(log_start_offset=0)})
    value["Responses"][0]["Partitions"][0]["LogStartOffset"] = 0
    assert joined(pieces) == oracle.response_frame("Fetch", 16, value)
    assert frame[found.tags_position] == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_answers_and_a_thousand_partitions(oracle: Oracle, version: int) -> None:
    frame = oracle.response_frame("Fetch", version, {})
    found = scan_fetch_response(frame, version)
    assert found.topics == ()
    assert joined(splice_fetch_response(frame, found, {})) == frame
    many = response(*(answer(None if n % 2 else b"", HighWatermark=n) for n in range(1000)))
    frame = oracle.response_frame("Fetch", version, many)
    (topic,) = scan_fetch_response(frame, version).topics
    assert [one.high_watermark for one in topic.partitions] == list(range(1000))
    assert [one.records_size for one in topic.partitions] == [0, -1] * 500


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_or_damaged_responses_are_a_wire_error(oracle: Oracle, version: int) -> None:
    rng = random.Random(version)
    for seed in range(4):
        frame = oracle.response_frame("Fetch", version, generate(oracle, version, f"cut {seed}"))
        for size in range(len(frame)):
            with pytest.raises(WireError):
                scan_fetch_response(frame[:size], version)
        with pytest.raises(WireError, match="1 bytes left"):
            scan_fetch_response(frame + b"\0", version)
        for _ in range(300):
            damaged = bytearray(frame)
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF))
            try:
                scan_fetch_response(damaged, version)
            except WireError:
                continue


@pytest.mark.parametrize("version", [3, 19])
def test_other_versions_are_a_wire_error(version: int) -> None:
    with pytest.raises(WireError, match="only"):
        scan_fetch_response(bytes(100), version)
