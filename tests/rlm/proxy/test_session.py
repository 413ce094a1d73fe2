"""The pure state of a connection: any cut of the byte streams gives the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.apis import API_VERSIONS, FETCH, PRODUCE
from kafka_protocol.frames import encode_request
from rlm.proxy.responses import Assembled, ResponseCutter, Streamed
from rlm.proxy.session import (
    Cut,
    Expected,
    Intercept,
    RequestCutter,
    SessionError,
    Taken,
)

LIMIT = 10_000


def produce(correlation_id: int, acks: int, version: int = 9) -> bytes:
    value = {"acks": acks, "timeout_ms": 1, "topic_data": []}
    return encode_request(PRODUCE, version, correlation_id, "client", value)


def fetch(correlation_id: int) -> bytes:
    return encode_request(FETCH, 12, correlation_id, "client", {"topics": []})


def unknown(correlation_id: int, size_bytes: int) -> bytes:
    frame = b"\x03\xe7\0\0" + correlation_id.to_bytes(4, "big") + b"u" * size_bytes
    return len(frame).to_bytes(4, "big") + frame


REQUESTS = [
    unknown(1, 0),
    produce(2, 1),
    produce(3, 0),
    encode_request(API_VERSIONS, 3, 4, "client", {}),
    unknown(5, 300),
    fetch(6),
    produce(7, -1, 3),
    fetch(8),
    fetch(9),
    unknown(10, 3),
]
CUTS = st.lists(st.integers(1, 200), min_size=1, max_size=40)


def pieces(stream: bytes, sizes: list[int]) -> list[bytes]:
    cut: list[bytes] = []
    position = 0
    while position < len(stream):
        size = sizes[len(cut) % len(sizes)]
        cut.append(stream[position : position + size])
        position += size
    return cut


@given(CUTS)
def test_requests_are_the_same_for_any_cut(sizes: list[int]) -> None:
    cutter = RequestCutter(LIMIT)
    passed = b""
    expected: list[Expected] = []
    taken: list[Taken] = []

    def take(cut: Cut) -> None:
        nonlocal passed
        passed += bytes(cut.passed)
        expected.extend(cut.expected)
        if cut.taken is not None:
            taken.append(cut.taken)

    resumed = 0
    for piece in pieces(b"".join(REQUESTS), sizes):
        take(cutter.feed(piece))
        while resumed < len(taken):
            resumed += 1
            take(cutter.resume())
    assert passed == b"".join(REQUESTS[n] for n in (0, 1, 2, 3, 4, 6, 9))
    assert [(one.correlation_id, one.intercept) for one in expected] == [
        (1, Intercept.NOTHING),
        (2, Intercept.PRODUCE),
        (4, Intercept.API_VERSIONS),
        (5, Intercept.NOTHING),
        (7, Intercept.PRODUCE),
        (10, Intercept.NOTHING),
    ]
    assert [bytes(one.frame) for one in taken] == [REQUESTS[n][4:] for n in (5, 7, 8)]
    assert [one.correlation_id for one in taken] == [6, 8, 9]
    assert cutter.held_bytes == 0


def test_nothing_passes_behind_a_taken_request() -> None:
    cutter = RequestCutter(LIMIT)
    cut = cutter.feed(fetch(1) + produce(2, 1))
    assert isinstance(cut.taken, Taken)
    assert bytes(cut.passed) == b""
    assert bytes(cutter.feed(produce(3, 1)).passed) == b""
    assert bytes(cutter.resume().passed) == produce(2, 1) + produce(3, 1)


def answer(correlation_id: int, size_bytes: int) -> bytes:
    frame = correlation_id.to_bytes(4, "big") + b"a" * size_bytes
    return len(frame).to_bytes(4, "big") + frame


@given(CUTS)
def test_answers_are_the_same_for_any_cut(sizes: list[int]) -> None:
    cutter = ResponseCutter(LIMIT)
    intercepts = [
        Intercept.NOTHING,
        Intercept.PRODUCE,
        Intercept.ASKED,
        Intercept.ASKED,
        Intercept.NOTHING,
    ]
    for number, intercept in enumerate(intercepts):
        above = 100 if intercept is Intercept.ASKED else None
        cutter.expect(
            Expected(intercept=intercept, api_version=1, correlation_id=number, stream_above=above)
        )
    stream = [answer(0, 500), answer(1, 30), answer(2, 50), answer(3, 500), answer(4, 0)]
    outputs: list[object] = []
    for piece in pieces(b"".join(stream), sizes):
        for output in cutter.feed(piece):
            if isinstance(output, memoryview):
                if outputs and isinstance(outputs[-1], bytes):
                    outputs[-1] += bytes(output)
                else:
                    outputs.append(bytes(output))
            else:
                outputs.append(output)
    first, produced, asked, streamed, end, last = outputs
    assert (first, streamed, last) == (stream[0], stream[3], stream[4])
    assert isinstance(produced, Assembled)
    assert bytes(produced.frame) == stream[1][4:]
    assert isinstance(asked, Assembled)
    assert bytes(asked.frame) == stream[2][4:]
    assert isinstance(end, Streamed)
    assert cutter.is_idle


def test_a_frame_may_be_received_in_place() -> None:
    cutter = ResponseCutter(LIMIT)
    cutter.expect(Expected(intercept=Intercept.ASKED, api_version=1, correlation_id=1))
    stream = answer(1, 1_000)
    assert cutter.room(1) is None
    assert cutter.feed(stream[:100]) == []
    assert cutter.room(2_000) is None
    room = cutter.room(1)
    assert room is not None
    room[:] = stream[100:]
    whole = cutter.filled(len(room))
    assert whole is not None
    assert bytes(whole.frame) == stream[4:]


@pytest.mark.parametrize(
    ("stream", "cause"),
    [
        (b"\0\0\0\x02", "bad_frame"),
        (b"\xff\xff\xff\xff", "bad_frame"),
        (b"\0\x01\0\0", "bad_frame"),
        (b"\x16\x03\x01\x02", "tls_on_plain"),
        (b"\0\0\0\x20\0\x01\0\x63\0\0\0\0", "version_not_offered"),
        (b"\0\0\0\x20\0\x4e\0\x01\0\0\0\0", "version_not_offered"),
        (b"\0\0\0\x20\0\x11\0\x00\0\0\0\0", "sasl_handshake_v0"),
        (b"\0\0\0\x0a\0\0\0\x09\0\0\0\0\0\0", "bad_frame"),
    ],
)
def test_what_cannot_go_on_names_its_cause(stream: bytes, cause: str) -> None:
    with pytest.raises(SessionError) as error:
        RequestCutter(LIMIT).feed(stream)
    assert error.value.cause == cause
