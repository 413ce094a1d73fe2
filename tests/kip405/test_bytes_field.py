"""One large field, written and read beside protobuf: both make and take the same messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.bytes_field import split_bytes_field, with_bytes_field
from rlm.v1 import fetch_pb2 as pb

_FIELD = pb.FetchResponse.BATCHES_FIELD_NUMBER
_OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
_RESTS = st.builds(
    pb.FetchResponse,
    next_offset=_OFFSETS,
    high_watermark=_OFFSETS,
    tier=st.sampled_from([pb.TIER_UNSPECIFIED, pb.REMOTE, pb.LOCAL]),
    aborted_transactions=st.lists(
        st.builds(pb.AbortedTransaction, producer_id=_OFFSETS, first_offset=_OFFSETS), max_size=5
    ),
    missing=st.lists(st.builds(pb.OffsetRange, start_offset=_OFFSETS, end_offset=_OFFSETS)),
)
_VALUES = st.binary(max_size=300)
_PARTS = st.lists(_VALUES | st.builds(lambda value: memoryview(value), _VALUES), max_size=4)


@given(_RESTS, _PARTS)
def test_protobuf_reads_what_is_written(
    rest: pb.FetchResponse, parts: list[bytes | memoryview]
) -> None:
    sent = with_bytes_field(rest.SerializeToString(), _FIELD, parts)
    expected = pb.FetchResponse()
    expected.CopyFrom(rest)
    expected.batches = b"".join(parts)
    assert pb.FetchResponse.FromString(sent) == expected


@given(_RESTS, st.binary(max_size=70_000))
def test_what_protobuf_writes_is_read(rest: pb.FetchResponse, batches: bytes) -> None:
    sent = pb.FetchResponse()
    sent.CopyFrom(rest)
    sent.batches = batches
    found, others = split_bytes_field(sent.SerializeToString(), _FIELD)
    assert found == batches
    assert pb.FetchResponse.FromString(others) == rest


@given(_RESTS, st.lists(st.binary(max_size=40), min_size=2, max_size=4))
def test_the_last_of_several_counts(rest: pb.FetchResponse, values: list[bytes]) -> None:
    """As protobuf reads a field that comes more than once."""
    sent = rest.SerializeToString()
    for value in values:
        sent += b"\x0a" + bytes([len(value)]) + value
    found, others = split_bytes_field(sent, _FIELD)
    assert found == pb.FetchResponse.FromString(sent).batches
    assert pb.FetchResponse.FromString(others) == rest


def test_the_field_is_not_copied() -> None:
    sent = with_bytes_field(b"\x10\x05", _FIELD, [b"batches"])
    found, _ = split_bytes_field(sent, _FIELD)
    assert found.obj is sent


def test_fields_of_every_kind_are_passed() -> None:
    others = b"\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x22\x01x" + b"\x28\xff\x01"
    sent = others[:9] + b"\x0a\x02ab" + others[9:]
    found, rest = split_bytes_field(sent, _FIELD)
    assert (bytes(found), rest) == (b"ab", others)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x0a", "has no end"),
        (b"\x0a\x05abc", "cut short"),
        (b"\x11\x00\x00", "cut short"),
        (b"\x80" * 11, "has no end"),
        (b"\x0b\x00", "wire type 3"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split_bytes_field(message, _FIELD)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(message: bytes) -> None:
    try:
        found, others = split_bytes_field(message, _FIELD)
    except ValueError:
        return
    assert len(found) + len(others) <= len(message)
