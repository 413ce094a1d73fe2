"""A long head that comes in single bytes costs no more than a multiple of its length (G6, H36)."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kafka_protocol.fetch import FetchResponseScanner
from kafka_protocol.frames import SHORT_PART_BYTES, PartialRead
from kafka_protocol.primitives import encode_uvarint
from kafka_protocol.produce_request import ProduceRequestScanner
from rlm.proxy.session import RequestCutter

FIELDS = 4000
TAGS = encode_uvarint(FIELDS) + b"\x63\x00" * FIELDS
"""Tagged fields that nobody knows, and that have no content."""
MOST_CALLS_A_BYTE = 100
LIMIT = 1 << 20


def calls_of(work: Callable[[], None]) -> int:
    """How many functions the work calls."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def fetch_answer() -> bytes:
    """Version 12, no error, one topic with one partition with one aborted transaction."""
    head = b"\0\0\0\x07" + b"\0" + bytes(4) + bytes(6) + b"\x02" + b"\x02t" + b"\x02"
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\x02" + bytes(16) + TAGS + b"\xff" * 4 + b"\0" + b"\0"
    return head + partition + b"\0" + b"\0"


def produce_request() -> bytes:
    """Version 9, no topics, with an empty client id."""
    return b"\0\0\0\x09\0\0\0\x01" + b"\0\0" + TAGS + b"\0" + b"\0\x01" + bytes(4) + b"\x01" + b"\0"


def scan_answer() -> None:
    frame = fetch_answer()
    scanner, start, found = FetchResponseScanner(len(frame), 12), 0, 0
    for end in range(1, len(frame) + 1):
        size_bytes, head = scanner.scan(memoryview(frame)[start:end])
        while size_bytes:
            if head is not None:
                found += 1
                scanner.passed(head)
            start += size_bytes
            size_bytes, head = (
                scanner.scan(memoryview(frame)[start:end]) if start < end else (0, None)
            )
    assert (scanner.left_bytes, found) == (0, 1)


def scan_request() -> None:
    frame = produce_request()
    scanner, start = ProduceRequestScanner(len(frame), 9, lambda _: False), 0
    for end in range(1, len(frame) + 1):
        start += scanner.scan(memoryview(frame)[start:end])[0]
    assert scanner.left_bytes == 0


def cut_request() -> None:
    frame = produce_request()
    cutter, passed = RequestCutter(LIMIT), bytearray()
    for byte in len(frame).to_bytes(4, "big") + frame:
        passed += cutter.feed(bytearray((byte,))).passed
    assert passed[4:] == frame


@pytest.mark.parametrize("work", [scan_answer, scan_request, cut_request])
def test_h36_a_long_head_in_single_bytes_costs_what_its_length_says(
    work: Callable[[], None],
) -> None:
    assert calls_of(work) < MOST_CALLS_A_BYTE * len(TAGS)


def test_a_part_is_read_again_when_it_has_grown_and_when_it_is_whole() -> None:
    partial, read = PartialRead(), []
    for size_bytes in range(1, 10_001):
        if partial.is_due(size_bytes, 10_000):
            read.append(size_bytes)
            partial.ended_early(size_bytes)
    assert read[:SHORT_PART_BYTES] == list(range(1, SHORT_PART_BYTES + 1))
    assert read[-1] == 10_000
    assert sum(read[SHORT_PART_BYTES:]) < 10 * 10_000
    partial.succeeded()
    assert partial.is_due(1, 10_000)
