"""Records decoded from batches of aiokafka's encoder: every codec, control records, timestamps,
corruption.
"""

import struct
import subprocess
import sys
import zlib

import cramjam
import pytest

from kip405.batches import Compression, read_header
from kip405.errors import Corrupt, Invalid
from kip405.records import ControlType, Record, decompress, find_timestamp, records
from tests.kip405.batch_builder import batch, control_batch, legacy, with_attributes, with_body

LOG_APPEND_TIME = 0x08
CODECS = list(Compression)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec(codec: Compression) -> None:
    value = b"a value that repeats itself " * 40
    data = batch(50, 3, first_ms=2_000, value=value, compression=codec)
    assert read_header(data).compression is codec
    assert list(records(data)) == [
        Record(50 + i, 2_000 + i, b"k%d" % i, value, (("h", b"%d" % i),), None) for i in range(3)
    ]


def test_records_of_a_batch_inside_a_buffer() -> None:
    first = batch(0, 2)
    assert [one.offset for one in records(first + batch(2, 3), len(first))] == [2, 3, 4]


def test_raw_snappy_as_librdkafka_and_go_write_it() -> None:
    plain = batch(0, 2)
    raw = with_body(with_attributes(plain, 2), bytes(cramjam.snappy.compress_raw(plain[61:])))
    assert list(records(raw)) == list(records(plain))


def test_snappy_in_several_xerial_blocks() -> None:
    blocks = [b"first block", b"second block" * 100]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        framed += struct.pack(">i", len(packed)) + packed
    assert decompress(Compression.SNAPPY, framed) == b"".join(blocks)


def test_null_key_and_null_value() -> None:
    plain = batch(0, 1)
    body = bytes([14, 0, 0, 0, 1, 1, 0])
    changed = with_body(plain, bytes([12]) + body[1:])
    assert [(one.key, one.value, one.headers) for one in records(changed)] == [(None, None, ())]


def test_control_records() -> None:
    assert [one.control_type for one in records(control_batch(9, 0))] == [ControlType.ABORT]
    assert [one.control_type for one in records(control_batch(9, 1))] == [ControlType.COMMIT]
    assert [one.control_type for one in records(control_batch(9, 5))] == [5]


def test_log_append_time_gives_all_records_the_time_of_the_batch() -> None:
    data = with_attributes(batch(0, 3, first_ms=1_000), LOG_APPEND_TIME)
    assert [one.timestamp_ms for one in records(data)] == [1_002] * 3
    assert find_timestamp(data, 1_001) == (0, 1_002)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("target", "expected"),
    [(0, (10, 1_000)), (1_000, (10, 1_000)), (1_002, (12, 1_002)), (1_003, None)],
)
def test_find_timestamp(codec: Compression, target: int, expected: tuple[int, int] | None) -> None:
    assert find_timestamp(batch(10, 3, compression=codec), target) == expected


def test_find_timestamp_at_or_above_an_offset() -> None:
    assert find_timestamp(batch(10, 3), 0, least_offset=11) == (11, 1_001)
    assert find_timestamp(batch(10, 3), 0, least_offset=13) is None


def test_find_timestamp_of_legacy_messages_answers_their_own() -> None:
    assert find_timestamp(legacy(4, timestamp_ms=70), 70) == (4, 70)
    assert find_timestamp(legacy(4, timestamp_ms=70), 71) is None
    assert find_timestamp(legacy(4, timestamp_ms=70), 70, least_offset=5) is None
    assert find_timestamp(legacy(4, magic=0), 0) is None


def test_records_of_legacy_messages_are_refused() -> None:
    with pytest.raises(Invalid, match="magic 1"):
        list(records(legacy(4)))


@pytest.mark.parametrize("codec", CODECS)
def test_cut_short_anywhere_is_corrupt(codec: Compression) -> None:
    data = batch(0, 2, compression=codec)
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            list(records(data[:size]))


@pytest.mark.parametrize("codec", CODECS)
def test_body_cut_short_anywhere_under_a_true_size_is_corrupt(codec: Compression) -> None:
    data = batch(0, 2, compression=codec)
    for size in range(61, len(data)):
        with pytest.raises(Corrupt, match="batch at offset 0"):
            list(records(with_body(data, data[61:size])))


def test_any_flipped_byte_of_a_plain_body_gives_records_or_corrupt_and_nothing_else() -> None:
    data = batch(0, 2)
    for at in range(61, len(data)):
        for bit in (0x01, 0x40, 0x80):
            broken = bytearray(data)
            broken[at] ^= bit
            try:
                list(records(broken))
            except Corrupt:
                continue


@pytest.mark.parametrize("codec", CODECS[1:])
def test_any_flipped_byte_of_a_compressed_body_gives_records_or_corrupt(codec: Compression) -> None:
    data = batch(0, 2, value=b"v" * 50, compression=codec)
    for at in range(61, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x41
        try:
            list(records(broken, max_bytes=1 << 16))
        except Corrupt:
            continue


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_records_that_grow_a_hundredfold_are_decompressed(codec: Compression) -> None:
    # cramjam's word for "does not fit" is what makes the output buffer grow.
    value = bytes(3 << 20)
    assert [one.value for one in records(batch(0, 1, value=value, compression=codec))] == [value]


def test_g10_the_limit_counts_all_xerial_blocks_together() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(1_000)))
    block = struct.pack(">i", len(packed)) + packed
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + block * 3
    assert len(decompress(Compression.SNAPPY, framed, 3_000)) == 3_000
    with pytest.raises(Corrupt, match="snappy records exceed"):
        decompress(Compression.SNAPPY, framed, 2_999)


def test_a_record_shorter_than_it_declares_is_corrupt() -> None:
    plain = batch(0, 1)
    body = plain[61:]
    longer = bytes([body[0] + 2]) + body[1:] + b"\x00"
    with pytest.raises(Corrupt, match="record 0 ends at byte"):
        list(records(with_body(plain, longer)))


def test_left_over_bytes_are_corrupt() -> None:
    data = batch(0, 2)
    with pytest.raises(Corrupt, match="1 bytes left over"):
        list(records(with_body(data, data[61:] + b"\x00")))
    with pytest.raises(Corrupt, match="left over"):
        decompress(Compression.GZIP, zlib.compress(b"x", wbits=31) + b"tail")


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.GZIP, zlib.compress(bytes(1 << 20), wbits=31)),
        (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))),
        (Compression.LZ4, bytes(cramjam.lz4.compress(bytes(1 << 20)))),
        (Compression.ZSTD, bytes(cramjam.zstd.compress(bytes(1 << 20)))),
    ],
)
def test_g10_a_bomb_is_stopped_at_the_limit(codec: Compression, data: bytes) -> None:
    assert len(decompress(codec, data, 1 << 20)) == 1 << 20
    with pytest.raises(Corrupt):
        decompress(codec, data, (1 << 20) - 1)


def test_without_cramjam_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cramjam'] = None\n"
        "from kip405.records import Compression, decompress\n"
        "try: decompress(Compression.ZSTD, b'x')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Invalid compressed records need cramjam: pip install")
