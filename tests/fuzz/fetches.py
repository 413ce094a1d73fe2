"""Targets: requests and answers of Fetch, which are scanned and changed without being decoded."""

import random
from collections.abc import Iterator

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch import (
    FetchedPartition,
    FetchRequest,
    FetchRequests,
    FetchResponse,
    FetchResponseScanner,
    PatchedPartition,
    SplicedPartition,
    aborted_transactions,
    overwrite_partition,
    patch_fetch_request,
    scan_fetch_request,
    scan_fetch_response,
    splice_fetch_response,
)
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import WireError
from rlm.proxy.fetch_plan import first_batch_bytes, is_consumer, is_incremental, plan_fetch
from tests.fuzz.case import READ, REFUSED, REQUEST, RESPONSE, Case
from tests.fuzz.mutations import next_size
from tests.kafka_protocol.test_fetch_response import joined, random_splice
from tests.kafka_protocol.test_fetch_stream import Shown, shown


def requests(case: Case) -> str:
    """A connection's requests in turn: what is remembered of the last one changes nothing."""
    sample = case.corpus.any(case.rng, REQUEST, FETCH)
    remembering, read = FetchRequests(), False
    frame = case.damaged(sample)
    for _ in range(4):
        try:
            header = parse_request_header(frame)
            wanted = scan_fetch_request(frame, header)
        except WireError:
            _refused(remembering, frame)
        else:
            read = True
            assert remembering.scan(frame) == (header.client_id, wanted)
            _patched(case.rng, frame, wanted)
            _planned(wanted)
        frame = _next(case, frame)
    return READ if read else REFUSED


def _next(case: Case, frame: bytes) -> bytes:
    """Mostly the same again, with a few bytes that are others."""
    again = bytearray(frame)
    for _ in range(case.rng.choice((0, 1, 4))):
        if again:
            again[case.rng.randrange(len(again))] = case.rng.randrange(256)
    return bytes(again)


def _refused(remembering: FetchRequests, frame: bytes) -> None:
    try:
        remembering.scan(frame)
    except WireError:
        return
    raise AssertionError("known by the request before it, though it cannot be read")


def _planned(request: FetchRequest) -> None:
    is_incremental(request)
    if is_consumer(request):
        plan = plan_fetch(
            request, lambda *_: None, lambda *_: None, ready=False, high_watermarks={}
        )
        assert len(plan.partitions) <= sum(len(topic.partitions) for topic in request.topics)
        assert not plan.is_plain or not plan.partitions
        plan.broker_max_bytes(lambda _: None)


def _patched(rng: random.Random, frame: bytes, request: FetchRequest) -> None:
    keys = [
        (at, index)
        for at, topic in enumerate(request.topics)
        for index in range(len(topic.partitions))
    ]
    partitions = {(at, index): request.topics[at].partitions[index] for at, index in keys}
    chosen = {key: (rng.randrange(2**62), rng.randrange(2**31)) for key in keys[:5]}
    changed = patch_fetch_request(
        frame,
        request,
        sessionless=True,
        max_wait_ms=7,
        replacements={partitions[key]: patch for key, patch in chosen.items()},
        max_bytes=9,
        leader_epochs={partitions[key]: 3 for key in keys[:2]},
        hide_rack=True,
    )
    assert len(changed) == len(frame)
    again = scan_fetch_request(changed, parse_request_header(changed))
    assert (again.max_wait_ms, again.max_bytes, again.replica_id) == (7, 9, request.replica_id)
    assert again.rack_id == "\0" * len(request.rack_id.encode())
    for at, index in keys:
        before = partitions[at, index]
        now = again.topics[at].partitions[index]
        offset, size = chosen.get((at, index), (before.fetch_offset, before.partition_max_bytes))
        assert (now.index, now.fetch_offset) == (before.index, offset)
        assert now.partition_max_bytes == size


def answers(case: Case) -> str:
    """A scan of the whole frame and one of its pieces show the same, or both refuse."""
    sample = case.corpus.any(case.rng, RESPONSE, FETCH)
    frame, version = case.damaged(sample), sample.version
    try:
        whole = scan_fetch_response(frame, version)
    except WireError:
        whole = None
    most = case.rng.choice((1, 3, 20, 300, 50_000))
    flowed = _flow(frame, version, case.rng, most)
    if whole is None:
        assert flowed is None or _differs_in_tags(frame, version), "read in pieces only"
        return REFUSED
    assert flowed == (_shown_of(whole), frame)
    _spliced(case.rng, frame, whole)
    return READ


def _shown_of(whole: FetchResponse) -> list[Shown]:
    return [
        shown(topic.topic_id or topic.name or "", one, one.start)
        for topic in whole.topics
        for one in topic.partitions
    ]


def _differs_in_tags(frame: bytes, version: int) -> bool:
    """A diverging epoch that is too short, behind records: only the whole scan reads it."""
    try:
        scan_fetch_response(frame, version)
    except WireError as error:
        return "requires a buffer" in str(error)
    return False


def _flow(
    frame: bytes, version: int, rng: random.Random, most: int
) -> tuple[list[Shown], bytes] | None:
    found: list[Shown] = []
    held, passed = bytearray(), bytearray()
    scanner = FetchResponseScanner(len(frame), version)
    try:
        fed = 0
        while fed < len(frame):
            size_bytes = next_size(rng, most, scanner.records_bytes)
            held += frame[fed : fed + size_bytes]
            fed += size_bytes
            position = 0
            for taken, head in _steps(scanner, held):
                if head is not None:
                    found.append(shown(scanner.topic, head, len(passed) + position))
                    scanner.passed(head)
                position += taken
            passed += held[:position]
            del held[:position]
    except WireError:
        return None
    return (found, bytes(passed)) if scanner.left_bytes == 0 and frame else None


def _steps(
    scanner: FetchResponseScanner, held: bytearray
) -> Iterator[tuple[int, FetchedPartition | None]]:
    position = 0
    while position < len(held) and scanner.left_bytes:
        taken, head = scanner.scan(memoryview(held)[position:])
        if taken == 0:
            return
        yield taken, head
        position += taken


def _spliced(rng: random.Random, frame: bytes, whole: FetchResponse) -> None:
    """Some partitions replaced: the others are what they were, byte for byte."""
    version = whole.api_version
    replacements: dict[tuple[int, int], SplicedPartition | PatchedPartition] = {}
    scratch = bytearray(frame)
    for at, topic in enumerate(whole.topics):
        for index, one in enumerate(topic.partitions):
            _inspected(rng, frame, one, version, scratch)
            if rng.random() < 0.5:
                replacements[at, index] = _replacement(rng, one)
    assert scratch == frame, "overwritten beside its partition"
    again_frame = joined(splice_fetch_response(frame, whole, replacements))
    again = scan_fetch_response(again_frame, version)
    for at, topic in enumerate(whole.topics):
        for index, one in enumerate(topic.partitions):
            now = again.topics[at].partitions[index]
            made = replacements.get((at, index))
            if made is None:
                assert frame[one.start : one.end] == again_frame[now.start : now.end]
            elif isinstance(made, SplicedPartition):
                assert now[:4] == (one.index, made.error_code, *now[2:4])
                assert now.records_size == sum(map(len, made.records))
            elif made.records_size_bytes is not None:
                assert now.records_size == made.records_size_bytes


def _replacement(rng: random.Random, one: FetchedPartition) -> SplicedPartition | PatchedPartition:
    if rng.random() < 0.5:
        return random_splice(rng)
    kept = rng.randint(0, one.records_size) if one.records_size > 0 else None
    return PatchedPartition(
        log_start_offset=rng.randrange(2**62), preferred_read_replica=4, records_size_bytes=kept
    )


def _inspected(
    rng: random.Random, frame: bytes, one: FetchedPartition, version: int, scratch: bytearray
) -> None:
    """`scratch` is the frame, and is it again afterwards."""
    aborted = aborted_transactions(frame, one, version)
    assert len(aborted) <= len(frame)
    records = memoryview(frame)[one.records_position :][: max(one.records_size, 0)]
    first_batch_bytes(records)
    try:
        overwrite_partition(scratch, one, random_splice(rng), version)
    except WireError:
        return
    assert one.records_size <= 0
    scratch[one.start : one.end] = frame[one.start : one.end]
