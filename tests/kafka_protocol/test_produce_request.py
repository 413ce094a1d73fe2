"""Produce requests that flow by, all versions: what of them is refused, and that no cut matters."""

import random
from typing import Any

import pytest

from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.produce import patch_produce_response
from kafka_protocol.produce_request import ProduceRequestScanner, spoiled
from tests.kafka_protocol.oracle import Oracle

VERSIONS = range(14)
OURS, OURS_BY_ID = b"__rlm_settings", b"own----topic--id"
MAX_INT32 = 0x7FFF_FFFF


def is_ours(topic: Buffer) -> bool:
    return bytes(topic) in (OURS, OURS_BY_ID)


def request_of(rng: random.Random, version: int) -> Any:
    """Topics of both kinds, named twice at times, with records, without and with null."""

    def topic(number: int) -> dict[str, Any]:
        ours = rng.random() < 0.5
        name = OURS.decode() if ours else f"orders-{number}"
        topic_id = OURS_BY_ID if ours else number.to_bytes(16, "big")
        key = {"TopicId": topic_id} if version >= 13 else {"Name": name}
        indexes = (rng.choice((0, 3, MAX_INT32, -1, -7)) for _ in range(rng.randrange(4)))
        records = (b"", b"r" * 200, b"__rlm_settings", None)
        rows = [{"Index": one, "Records": rng.choice(records)} for one in indexes]
        return {**key, "PartitionData": rows}

    tx = {"TransactionalId": rng.choice((None, "tx"))} if version >= 3 else {}
    topics = [topic(number) for number in range(rng.randrange(4))]
    return {**tx, "Acks": -1, "TimeoutMs": 9, "TopicData": topics}


def is_of_ours(topic: dict[str, Any]) -> bool:
    return topic.get("Name") == OURS.decode() or topic.get("TopicId") == OURS_BY_ID


def spoil(request: Any) -> int:
    """In place, as the scanner should; the number of partitions."""
    rows = [row for one in request["TopicData"] if is_of_ours(one) for row in one["PartitionData"]]
    for row in rows:
        row["Index"] = min(row["Index"], -1 - row["Index"])
    return len(rows)


def flow(frame: bytes, version: int, sizes: list[int]) -> tuple[bytes, ProduceRequestScanner]:
    """The frame as it is passed on when it comes in pieces of these sizes, over and over."""
    scanner = ProduceRequestScanner(len(frame), version, is_ours)
    passed, held, position, records_bytes, turn = bytearray(), bytearray(), 0, 0, 0
    while position < len(frame):
        size_bytes = sizes[turn % len(sizes)]
        piece = frame[position : position + size_bytes]
        turn, position = turn + 1, position + len(piece)
        held += piece
        while held:
            taken = min(records_bytes, len(held))
            if taken == 0:
                taken, records_bytes = scanner.scan(memoryview(held))
                records_bytes += taken
                if taken == 0:
                    break
            passed += held[:taken]
            records_bytes -= taken
            held = held[taken:]
    assert (scanner.left_bytes, records_bytes, bytes(held)) == (0, 0, b"")
    return bytes(passed), scanner


@pytest.mark.parametrize("version", VERSIONS)
def test_only_partitions_of_refused_topics_are_spoiled_whatever_the_cut(
    oracle: Oracle, version: int
) -> None:
    for seed in range(60):
        rng = random.Random(f"{version} {seed}")
        request = request_of(rng, version)
        frame = oracle.request_frame("Produce", version, request)
        count = spoil(request)
        wanted = oracle.request_frame("Produce", version, request)
        for sizes in ([len(frame)], [1], [rng.randrange(1, 60) for _ in range(9)]):
            passed, scanner = flow(frame, version, sizes)
            assert (passed, scanner.refused_partitions) == (wanted, count)


@pytest.mark.parametrize("index", [0, 1, 77, MAX_INT32])
def test_a_spoiled_index_is_no_partition_and_comes_back(index: int) -> None:
    assert spoiled(index) < 0
    assert spoiled(spoiled(index)) == index


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_about_refused_partitions_have_the_index_and_the_error(
    oracle: Oracle, version: int
) -> None:
    for seed in range(20):
        rng = random.Random(f"{version} {seed}")
        answer = oracle.message("ProduceResponse", version).generate(rng)
        for topic in answer["Responses"]:
            is_refused = rng.random() < 0.5
            if is_refused and version >= 13:
                topic["TopicId"] = OURS_BY_ID
            elif is_refused:
                topic["Name"] = OURS.decode()
            for row in topic["PartitionResponses"]:
                row["Index"] = rng.choice((0, 5, -1, -6, -1 - MAX_INT32))
        frame = bytearray(oracle.response_frame("Produce", version, answer))
        for topic in answer["Responses"]:
            for row in topic["PartitionResponses"] if is_of_ours(topic) else ():
                if row["Index"] < 0:
                    row["Index"], row["ErrorCode"] = -1 - row["Index"], 29
        patched = patch_produce_response(
            frame,
            version,
            lambda *_: None,
            refuses=lambda name, topic_id: is_ours((name or "").encode() or topic_id or b""),
        )
        assert patched == oracle.response_frame("Produce", version, answer)


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_or_damaged_requests_are_a_wire_error(oracle: Oracle, version: int) -> None:
    request = request_of(random.Random(3), version)
    assert request["TopicData"]
    frame = oracle.request_frame("Produce", version, request)
    for size_bytes in range(8, len(frame)):
        with pytest.raises(WireError):
            flow(frame[:size_bytes], version, [size_bytes])
    with pytest.raises(WireError):
        flow(frame + b"x", version, [len(frame) + 1])
    for seed in range(300):
        rng = random.Random(seed)
        damaged = bytearray(frame)
        for at in rng.sample(range(8, len(frame)), 3):
            damaged[at] = rng.randrange(256)
        try:
            passed, _ = flow(bytes(damaged), version, [rng.randrange(1, 90)])
        except WireError:
            continue
        assert len(passed) == len(frame)


def test_a_head_without_end_is_refused_before_it_fills_the_memory() -> None:
    size_bytes = 50_000_000
    scanner = ProduceRequestScanner(size_bytes, 9, is_ours)
    head = b"\0\0\0\x09\0\0\0\x01\xff\xff\0" + b"\xff\xff\xff\xff\x0f"  # a transactional id
    assert scanner.scan(memoryview(bytearray(head + bytes(100_000)))) == (0, 0)
    with pytest.raises(WireError, match="bytes expected"):
        scanner.scan(memoryview(bytearray(head + bytes(200_000))))
