"""A Fetch request that repeats the one before gives the same as one that is scanned whole."""

import copy
import random

import pytest

from kafka_protocol.fetch import FetchRequest, FetchRequests, scan_fetch_request
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import Buffer, WireError
from tests.kafka_protocol.oracle import Json, Oracle

VERSIONS = range(4, 19)
Scanned = tuple[str | None, FetchRequest] | str


def whole(frame: Buffer) -> Scanned:
    try:
        header = parse_request_header(frame)
        return header.client_id, scan_fetch_request(frame, header)
    except WireError:
        return "WireError"


def remembered(requests: FetchRequests, frame: Buffer) -> Scanned:
    try:
        return requests.scan(frame)
    except WireError:
        return "WireError"


def generate(oracle: Oracle, version: int, seed: int) -> Json:
    return oracle.message("FetchRequest", version).generate(random.Random(f"{version} {seed}"))


def read_on(value: Json, rng: random.Random) -> Json:
    """The next request of a consumer: the same partitions at other offsets and epochs."""
    following = copy.deepcopy(value)
    for topic in following["Topics"]:
        for partition in topic["Partitions"]:
            for field in ("FetchOffset", "CurrentLeaderEpoch", "LastFetchedEpoch"):
                if field in partition:
                    partition[field] = rng.randrange(1 << 31)
    return following


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_has_its_own_offsets(oracle: Oracle, version: int) -> None:
    rng, requests = random.Random(version), FetchRequests()
    for seed in range(10):
        value = generate(oracle, version, seed)
        for _ in range(4):
            frame = bytearray(oracle.request_frame("Fetch", version, value))
            frame[4:8] = rng.randbytes(4)
            assert remembered(requests, frame) == whole(frame)
            value = read_on(value, rng)


def test_only_the_partitions_of_a_repeated_request_are_read_again(oracle: Oracle) -> None:
    requests, rng = FetchRequests(), random.Random(1)
    value = generate(oracle, 12, 3)
    _, first = requests.scan(oracle.request_frame("Fetch", 12, value))
    frame = oracle.request_frame("Fetch", 12, read_on(value, rng))
    found = requests.scan(frame)
    assert found == whole(frame) and found[1] != first
    assert [topic.name for topic in found[1].topics]
    for topic, before in zip(found[1].topics, first.topics, strict=True):
        assert topic.name is before.name  # a scan would make it anew


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_differs_in_any_byte_is_read_as_it_is(oracle: Oracle, version: int) -> None:
    frame = oracle.request_frame("Fetch", version, generate(oracle, version, 3))
    for position in range(min(len(frame), 400)):
        requests = FetchRequests()
        requests.scan(frame)
        for change in (1, 0x80):
            changed = bytearray(frame)
            changed[position] ^= change
            assert remembered(requests, changed) == whole(changed), position


def test_h36_a_long_request_is_not_remembered(oracle: Oracle) -> None:
    requests = FetchRequests()
    value = generate(oracle, 12, 3)
    value["Topics"] = value["Topics"][:1]
    value["Topics"][0]["Partitions"] = value["Topics"][0]["Partitions"][:1] * 100
    frame = oracle.request_frame("Fetch", 12, value)
    assert len(frame) > 2_048
    for _ in range(2):
        assert remembered(requests, frame) == whole(frame)
    assert requests.remembered_bytes == 0
