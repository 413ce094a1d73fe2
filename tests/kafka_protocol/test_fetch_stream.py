"""Scanning Fetch responses while they flow: any cut shows what a scan of the whole frame shows."""

import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from kafka_protocol.fetch import (
    FetchedPartition,
    FetchResponseScanner,
    PatchedPartition,
    SplicedPartition,
    overwrite_partition,
    patch_partition,
    scan_fetch_response,
    splice_fetch_response,
)
from kafka_protocol.primitives import Buffer, WireError
from tests.kafka_protocol.oracle import UNKNOWN_TAGS, Oracle
from tests.kafka_protocol.test_fetch_response import SEEDS, VERSIONS, generate, joined


class Shown(NamedTuple):
    """A partition with the positions that it has in the frame."""

    topic: str | bytes
    partition: FetchedPartition


def shown(topic: str | bytes, one: FetchedPartition, start: int) -> Shown:
    """Without what a scanner cannot know of a partition whose records are still to come."""
    found = one._asdict()
    shift = start - one.start
    for name, value in found.items():
        is_position = name.endswith("position") or name in ("start", "end")
        if is_position and value != -1:
            found[name] = value + shift
    if one.records_size > 0:
        found |= {"end": 0, "diverging_epoch": None}
    return Shown(topic, FetchedPartition(**found))


def flow(frame: bytes, version: int, rng: random.Random, most: int) -> tuple[list[Shown], bytes]:
    """What is shown, and what is passed on, when the frame comes in random pieces."""
    scanner = FetchResponseScanner(len(frame), version)
    found, passed, held, position = [], b"", b"", 0
    while position < len(frame):
        size = rng.randint(1, most)
        held += frame[position : position + size]
        position += size
        while held:
            before = scanner.left_bytes
            taken, head = scanner.scan(memoryview(held))
            if taken == 0:
                break
            if head is not None:
                assert scanner.left_bytes == before
                assert scanner.scan(memoryview(held)) == (taken, head), "until it was passed"
                found.append(shown(scanner.topic, head, len(passed)))
                scanner.passed(head)
            passed, held = passed + held[:taken], held[taken:]
    assert scanner.left_bytes == 0
    return found, passed


@pytest.mark.parametrize("version", VERSIONS)
def test_any_cut_shows_what_the_whole_frame_shows(oracle: Oracle, version: int) -> None:
    for seed in SEEDS:
        frame = oracle.response_frame("Fetch", version, generate(oracle, version, seed))
        wanted = [
            shown(topic.topic_id or topic.name or "", one, one.start)
            for topic in scan_fetch_response(frame, version).topics
            for one in topic.partitions
        ]
        for most in (1, 7, 100, len(frame)):
            rng = random.Random(f"{version} {seed} {most}")
            assert flow(frame, version, rng, most) == (wanted, frame)


def drained(frame: Buffer, version: int, size_bytes: int) -> None:
    scanner = FetchResponseScanner(size_bytes, version)
    view = memoryview(frame)
    while scanner.left_bytes:
        taken, head = scanner.scan(view)
        if taken == 0:
            raise AssertionError("waits for bytes beyond the frame")
        if head is not None:
            scanner.passed(head)
        view = view[taken:]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_of_another_size_is_an_error(oracle: Oracle, version: int) -> None:
    frame = oracle.response_frame("Fetch", version, generate(oracle, version, 3))
    drained(frame, version, len(frame))
    for size_bytes in (*range(1, len(frame)), len(frame) + 1):
        with pytest.raises(WireError):
            drained(frame[:size_bytes] + b"\0", version, size_bytes)


def test_only_versions_that_are_handled_are_scanned() -> None:
    for version in (3, 19):
        with pytest.raises(WireError):
            FetchResponseScanner(100, version)


EMPTY = SplicedPartition(
    error_code=0,
    high_watermark=200,
    last_stable_offset=190,
    log_start_offset=5,
    aborted_transactions=None,
    preferred_read_replica=-1,
    records=(),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_records_is_replaced_in_place(oracle: Oracle, version: int) -> None:
    """As `splice_fetch_response` replaces it, which may change the size."""
    value = generate(oracle, version, 1)
    for topic in value["Responses"]:
        for one in topic["Partitions"]:
            one.update(ErrorCode=1, Records=b"", AbortedTransactions=None)
            one.pop("DivergingEpoch", None)
            for tagged in (UNKNOWN_TAGS, "CurrentLeader", "SnapshotId"):
                one.pop(tagged, None)
    frame = oracle.response_frame("Fetch", version, value)
    response = scan_fetch_response(frame, version)
    ats = [(t, p) for t, topic in enumerate(response.topics) for p in range(len(topic.partitions))]
    wanted = joined(splice_fetch_response(frame, response, dict.fromkeys(ats, EMPTY)))
    patched = bytearray(frame)
    for topic_at, at in ats:
        overwrite_partition(patched, response.topics[topic_at].partitions[at], EMPTY, version)
    again = scan_fetch_response(patched, version)
    assert [topic.partitions for topic in again.topics] == [
        topic.partitions for topic in scan_fetch_response(wanted, version).topics
    ]
    assert len(patched) == len(frame)


def test_what_would_change_the_size_is_not_replaced_in_place(oracle: Oracle) -> None:
    frame = bytearray(100)
    one = FetchedPartition(0, 1, -1, -1, -1, -1, 0, 40, 22, 31, 36, 0, 36, None)
    records = replace(EMPTY, records=(b"r",))
    diverging = replace(EMPTY, diverging_epoch=(1, 2))
    for answered, spliced in (
        (one._replace(records_size=1), EMPTY),
        (one, records),
        (one, diverging),
        (one._replace(diverging_epoch=(1, 2)), EMPTY),
    ):
        with pytest.raises(WireError):
            overwrite_partition(frame, answered, spliced, 12)
    assert frame == bytearray(100)
    patch_partition(frame, one._replace(log_start_offset=7), PatchedPartition(log_start_offset=3))
    assert frame[22:30] == (3).to_bytes(8, "big")
