"""Bounds of the primitives: lengths, varints and tagged fields that do not fit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.apis import API_VERSIONS, METADATA
from kafka_protocol.fetch import scan_fetch_response
from kafka_protocol.primitives import Reader, WireError, Writer, encode_uvarint, read_uvarint
from kafka_protocol.schema import decode


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_uvarint_round_trip(value: int) -> None:
    encoded = b"\xff" + encode_uvarint(value) + b"\xff"
    assert read_uvarint(encoded, 1) == (value, len(encoded) - 1)
    assert Reader(encoded, 1, what="x").uvarint() == value


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x1f", b"\x80" * 5 + b"\x01", b"\x80", b""])
def test_a_varint_too_long_or_cut_is_a_wire_error(encoded: bytes) -> None:
    with pytest.raises(WireError, match="varint"):
        Reader(encoded, what="x").uvarint()


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_varint_out_of_range_is_not_written(value: int) -> None:
    with pytest.raises(WireError, match="varint"):
        encode_uvarint(value)


def test_errors_name_message_reason_and_position() -> None:
    with pytest.raises(WireError, match=r"^Metadata response v0: 2 bytes .* 1 left at position 8$"):
        decode(METADATA.response, 0, b"\0\0\0\1\0\0\0\1\0" + b"", 0)


def test_a_tagged_field_of_another_size_than_declared_is_a_wire_error() -> None:
    finalized_epoch = b"\x01" + b"\x01" + b"\x09" + bytes(9)  # one tag: number 1, 9 bytes, an int64
    with pytest.raises(WireError, match="finalized_features_epoch is not of 9 bytes"):
        decode(API_VERSIONS.response, 3, b"\0\0\x01\0\0\0\0" + finalized_epoch)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x40", b"\xff\xff\xff\xfe"])
def test_scanners_refuse_counts_that_cannot_fit(count: bytes) -> None:
    with pytest.raises(WireError, match=r"array of -?\d+ elements"):
        scan_fetch_response(bytes(8) + count + bytes(20), 4)


def test_fixed_size_values_come_back() -> None:
    writer = Writer(what="x")
    writer.uint16(65_535)
    writer.int64(-(2**63))
    writer.boolean(True)
    writer.uuid(bytes(range(16)))
    reader = Reader(writer.buffer, what="x")
    assert (reader.uint16(), reader.int64()) == (65_535, -(2**63))
    assert reader.boolean() is True
    assert reader.uuid() == bytes(range(16))
    assert reader.remaining() == 0


def test_a_float_comes_back_and_what_is_no_number_is_a_wire_error() -> None:
    writer = Writer(what="x")
    writer.float64(-2.5)
    assert Reader(bytes(writer.buffer), what="x").float64() == -2.5
    writer.float64(math.nan)
    with pytest.raises(WireError, match="a number expected"):
        Reader(bytes(writer.buffer), 8, what="x").float64()
