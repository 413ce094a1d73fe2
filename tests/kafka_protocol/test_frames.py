"""Cutting a stream into frames, and headers of requests and responses."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.apis import API_VERSIONS, APIS, FETCH, METADATA
from kafka_protocol.frames import (
    FrameAssembler,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    with_length,
)
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Api
from tests.kafka_protocol.oracle import Oracle


@given(
    frames=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(min_value=0, max_value=260)),
)
def test_frames_come_out_whole_however_the_stream_is_cut(
    frames: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(map(with_length, frames))
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assembler = FrameAssembler()
    found = []
    for start, end in itertools.pairwise(borders):
        reused = bytearray(stream[start:end])
        found += assembler.feed(memoryview(reused))
        reused[:] = b"\xff" * len(reused)
    assert [bytes(frame) for frame in found] == frames
    assert assembler.pending_bytes == 0


def test_byte_by_byte() -> None:
    frames = [b"", b"a", bytes(range(256)), b"last"]
    stream = b"".join(map(with_length, frames))
    assembler = FrameAssembler()
    found = [frame for byte in stream for frame in assembler.feed(bytes([byte]))]
    assert [bytes(frame) for frame in found] == frames


def test_pending_bytes_is_the_declared_size_of_the_frame_under_way() -> None:
    assembler = FrameAssembler()
    assert assembler.feed(b"\0\0\0") == []
    assert assembler.pending_bytes == 0
    assert assembler.feed(b"\x09ab") == []
    assert assembler.pending_bytes == 9
    assert assembler.feed(b"cdefghi") == [bytearray(b"abcdefghi")]
    assert assembler.pending_bytes == 0


def test_memory_follows_the_bytes_received_not_the_declared_size() -> None:
    assembler = FrameAssembler(max_frame_bytes=1 << 30)
    assembler.feed((1 << 30).to_bytes(4, "big") + b"x")
    assert assembler.pending_bytes == 1 << 30
    assert assembler._frame.__sizeof__() < 1000


@pytest.mark.parametrize("size", [101, 2**31 - 1, -1, -(2**31)])
def test_lengths_out_of_bounds_are_a_wire_error(size: int) -> None:
    with pytest.raises(WireError, match=f"frame of {size} bytes"):
        FrameAssembler(max_frame_bytes=100).feed(size.to_bytes(4, "big", signed=True))
    assert FrameAssembler(max_frame_bytes=100).feed(with_length(bytes(100))) == [bytes(100)]


@pytest.mark.parametrize(
    ("start", "protocol"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS ClientHello"),
        (b"\x15\x03\x01\x00\x02", "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"POST /x HTTP/1.1\r\n", "HTTP request"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (b"HTTP/1.1 400", "HTTP response"),
        (b"SSH-2.0-x", "SSH"),
    ],
)
def test_other_protocols_are_named(start: bytes, protocol: str) -> None:
    with pytest.raises(WireError, match=protocol):
        FrameAssembler(max_frame_bytes=2**31 - 1).feed(start)


@pytest.mark.parametrize("client_id", [None, "", "client", "\u00e4" * 50])
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_request_headers_of_all_versions(oracle: Oracle, api: Api, client_id: str | None) -> None:
    for version in oracle.valid_versions(f"{api.name}Request"):
        value = oracle.message(f"{api.name}Request", version).generate(random.Random(version))
        frame = oracle.request_frame(api.name, version, value, client_id)
        header = parse_request_header(frame)
        assert (header.api_key, header.api_version) == (api.key, version)
        assert (header.correlation_id, header.client_id) == (77, client_id)
        body = oracle.message(f"{api.name}Request", version).encode(value)
        assert frame[header.body_offset :] == body
        for size in range(header.body_offset):
            with pytest.raises(WireError):
                parse_request_header(frame[:size])
        empty = oracle.request_frame(api.name, version, {}, client_id)
        assert encode_request(api, version, 77, client_id, {}) == with_length(empty)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_response_headers_of_all_versions(oracle: Oracle, api: Api) -> None:
    for version in oracle.valid_versions(f"{api.name}Response"):
        frame = oracle.response_frame(api.name, version, {})
        body = oracle.message(f"{api.name}Response", version).encode({})
        assert parse_response_header(frame, api, version) == (77, len(frame) - len(body))
        assert encode_response(api, version, 77, {}) == with_length(frame)


def test_a_whole_response_is_decoded_and_bytes_behind_it_are_an_error(oracle: Oracle) -> None:
    for version in oracle.valid_versions("FetchResponse")[-2:]:
        frame = oracle.response_frame("Fetch", version, {})
        correlation_id, value = decode_response(FETCH, version, frame)
        assert (correlation_id, value["responses"]) == (77, [])
        with pytest.raises(WireError, match=f"Fetch v{version} response: 1 bytes after its end"):
            decode_response(FETCH, version, frame + b"\0")
        with pytest.raises(WireError):
            decode_response(FETCH, version, frame[:-1])


def test_api_versions_answers_with_header_v0_always() -> None:
    assert parse_response_header(b"\0\0\0\x05\x01", API_VERSIONS, 4) == (5, 4)
    assert parse_response_header(b"\0\0\0\x05\x00", METADATA, 9) == (5, 5)


def test_tagged_fields_of_headers_are_skipped() -> None:
    tags = b"\x02\x00\x03abc\x63\x01z"
    head = FETCH.key.to_bytes(2, "big") + b"\0\x0c\0\0\0\x01\xff\xff" + tags
    assert parse_request_header(head + b"body").body_offset == len(head)
    assert parse_response_header(b"\0\0\0\x05" + tags, FETCH, 12) == (5, 4 + len(tags))


def test_headers_of_apis_without_table() -> None:
    """SaslHandshake and the like are passed on; ControlledShutdown v0 has no client id."""
    header = parse_request_header(b"\0\x11\0\x01\0\0\0\x09\0\x02idrest")
    assert (header.api_key, header.client_id, header.body_offset) == (17, "id", 12)
    header = parse_request_header(b"\0\x07\0\0\0\0\0\x09\0\0\0\x01")
    assert (header.api_key, header.client_id, header.body_offset) == (7, None, 8)


def test_an_odd_client_id_does_not_cost_the_connection() -> None:
    header = parse_request_header(b"\0\x11\0\x01\0\0\0\x09\0\x02\xff\xfe")
    assert header.client_id == "\ufffd\ufffd"
    with pytest.raises(WireError, match="client id of -2 bytes"):
        parse_request_header(b"\0\x11\0\x01\0\0\0\x09\xff\xfe")
