"""Ranges out of a data object equal those of the raw log; damage is an error with its location."""

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Corrupt
from kip405.segments import ByteRange
from rsm_plugins.blocks.format import RawIndex, decode_index, encode_index
from rsm_plugins.blocks.index import build_index, parse_index
from rsm_plugins.blocks.plan import BlockPlanner, PositionPoints
from rsm_plugins.blocks.reading import (
    EntryLocation,
    KnownSegments,
    PositionTable,
    batches_in,
    reads_of,
)
from rsm_plugins.layout.stored import ObjectContent
from rsm_plugins.v1.blocks_pb2 import BlocksMetadata
from tests.rsm_plugins.blocks.logs import FIRST_OFFSET, LOCATOR, Stored, log_of, source_of, stored

BLOCK = 1_000
INTERVAL = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "source"


class Reader:
    """Reads ranges as a store does, and counts the bytes."""

    def __init__(self, found: Stored, *, remembered_max: int = 8) -> None:
        self.index = found.index
        self.table = PositionTable(self.index, remembered_max=remembered_max)
        self.data = found.data
        self.read_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        runs: list[memoryview] = []
        for read in reads_of(self.index, self.table, ByteRange(start=start, end=end)):
            data = self.data[read.start : read.end]
            self.read_bytes += len(data)
            found, location = batches_in(read, data)
            runs += found
            if location is not None:
                self.table.remember(location)
        return b"".join(runs)


def with_points(sizes: list[int], path: Path) -> Stored:
    """Stored with more points than one in a MiB, so that small logs have some."""
    found = stored(log_of(sizes), BLOCK, path)
    planner = BlockPlanner(BLOCK, interval_bytes=INTERVAL)
    planner.feed(found.log)
    plan = planner.finish()
    return replace(found, plan=plan, index_bytes=build_index(plan, LOCATOR, found.source))


@given(
    sizes=st.lists(st.integers(26, 860), min_size=1, max_size=30),
    ranges=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3_000)), max_size=20),
    most=st.integers(1, 8),
)
def test_random_histories_of_ranges_equal_the_log(
    sizes: list[int],
    ranges: list[tuple[int, int]],
    most: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = with_points(sizes, tmp_path_factory.getbasetemp() / "log")
    reader = Reader(found, remembered_max=most)
    for start, size in ranges:
        assert reader.read(start, start + size) == found.log[start : start + size]


def test_every_range_equals_the_log(path: Path) -> None:
    """All borders, each after all others, so that each is read from remembered locations too."""
    found = with_points([100, 26, 700, 30, 860, 26, 27, 500, 41], path)
    reader = Reader(found)
    borders = range(0, len(found.log) + 40, 31)
    wanted = [(start, end) for start in borders for end in borders if start <= end]
    random.Random(1).shuffle(wanted)
    for start, end in wanted:
        assert reader.read(start, end) == found.log[start:end], (start, end)


def test_no_read_goes_beyond_the_entries_of_its_block(path: Path) -> None:
    """Also where the first entry of the next block is known."""
    found = with_points([850, 500, 700, 600, 860], path)
    reader = Reader(found)
    blocks = {block.log_position for block in found.index.blocks[1:]}
    assert blocks & set(found.index.points.log_positions)
    for read in reads_of(reader.index, reader.table, ByteRange(start=0, end=len(found.log))):
        assert read.end == read.block.entries_end


def test_a_read_in_order_begins_where_the_last_one_ended(path: Path) -> None:
    """Whatever the points are; so nothing is read only to find the first batch."""
    found = stored(log_of([100] * 2_000), 500_000, path)
    reader = Reader(found)
    for start in range(0, len(found.log), 10_000):
        (read,) = reads_of(reader.index, reader.table, ByteRange(start=start, end=start + 10_000))
        assert read.first == EntryLocation(start, 128 + start // 100 * 112)
        reader.read(start, start + 10_000)


def test_a_cold_read_of_a_mib_reads_little_else(path: Path) -> None:
    """The points are the batches that hold the multiples of 1 MiB: nothing is scanned."""
    mib = 1 << 20
    found = stored(log_of([16_000] * 400), 64 * mib, path)
    for start in range(0, len(found.log) - mib, mib):
        reader = Reader(found)
        assert reader.read(start, start + mib) == found.log[start : start + mib]
        assert reader.read_bytes < mib + 16_000 + 70 * 12 + 128


def test_only_some_locations_are_remembered(path: Path) -> None:
    found = stored(log_of([100] * 100), 50_000, path)
    table = PositionTable(found.index, remembered_max=3)
    block = found.index.blocks[0]
    locations = [EntryLocation(100 * one, 128 + 112 * one) for one in range(1, 6)]
    for location in (*locations, locations[-1]):
        table.remember(location)
    assert table.at_or_before(block, 299) == EntryLocation(0, 128)
    assert [table.at_or_before(block, 100 * one) for one in (3, 4, 5)] == locations[2:]
    assert table.at_or_after(block, 401) == locations[-1]


def damaged(found: Stored, position: int, value: bytes) -> Stored:
    data = bytearray(found.data)
    data[position : position + len(value)] = value
    return replace(found, data=bytes(data))


@pytest.mark.parametrize(
    ("position", "value", "match"),
    [
        (0, b"\x00", "header of block 1"),
        (4, b"\x01", "header of block 1"),
        (12, b"\x01", "header of block 1"),
        (20, b"\x01", "header of block 1"),
        (28, b"\x01", "header of block 1"),
        (127, b"\x01", "header of block 1"),
        (128, struct.pack(">i", 0), "of 0 bytes"),
        (128, b"\xfe\xdc\xde\xad", "cannot be in"),
        (128, struct.pack(">i", 301), "holds a batch of 300 bytes"),
        (128, struct.pack(">i", 299), "holds a batch of 300 bytes"),
        (128, struct.pack(">i", 2**31 - 1), "cannot be in"),
        (132, struct.pack(">q", FIRST_OFFSET + 1), "cannot be in"),
        (132 + 312, struct.pack(">q", FIRST_OFFSET), "cannot be in"),
        (132 + 312, struct.pack(">q", FIRST_OFFSET + 4), "with offset"),
        (132 + 312, struct.pack(">q", FIRST_OFFSET + 6), "cannot be in"),
        (140 + 312, struct.pack(">q", FIRST_OFFSET + 4), "with offset"),
        (148 + 312, struct.pack(">i", 5_000), "holds a batch"),
    ],
)
def test_damage_is_an_error_with_its_location(
    position: int, value: bytes, match: str, path: Path
) -> None:
    found = damaged(stored(log_of([300, 300, 300]), BLOCK, path), position, value)
    with pytest.raises(Corrupt, match=match):
        Reader(found).read(0, 900)


def test_every_flipped_bit_of_headers_is_noticed(path: Path) -> None:
    found = stored(log_of([300, 300, 300, 300]), BLOCK, path)
    headers = [*range(128), *range(BLOCK, BLOCK + 128)]
    for start in (128, 128 + 312, BLOCK + 128, BLOCK + 128 + 312):
        headers += range(start, start + 24)  # the entry's header and the batch's offset and length
    for at in headers:
        for bit in range(8):
            flipped = damaged(found, at, bytes([found.data[at] ^ 1 << bit]))
            with pytest.raises(Corrupt):
                Reader(flipped).read(0, 1_200)


@pytest.mark.parametrize("lost", [1, 100, 500, 900])
def test_a_data_object_that_was_cut_short_is_an_error(lost: int, path: Path) -> None:
    found = stored(log_of([300, 300, 300]), BLOCK, path)
    cut = replace(found, data=found.data[:-lost])
    with pytest.raises(Corrupt, match="shorter than its index"):
        Reader(cut).read(0, 900)


def changed(found: Stored, **fields: object) -> bytes:
    """The index object with other fields in its metadata."""
    raw = decode_index(found.index_bytes)
    metadata = BlocksMetadata.FromString(bytes(raw.metadata))
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(metadata, name)[:]
            getattr(metadata, name).extend(value)
        else:
            setattr(metadata, name, value)
    return encode_index(replace(raw, metadata=metadata.SerializeToString()))


def test_an_index_that_contradicts_itself_is_corrupt(path: Path) -> None:
    found = with_points([300, 300, 300, 300], path)
    index, raw = found.index_bytes, decode_index(found.index_bytes)
    last = raw.mappings[-1]
    bad = {
        "magic": b"\x00" + index[1:],
        "one byte less": index[:-1],
        "one byte more": index + b"\x00",
        "a part of the header": index[:31],
        "zeros": bytes(len(index)),
        "header length": index[:23] + b"\x7f" + index[24:],
        "count": index[:27] + b"\x03" + index[28:],
        "a mapping less": encode_index(replace(raw, mappings=raw.mappings[:-1])),
        "numbers": encode_index(
            replace(raw, mappings=(*raw.mappings[:-1], replace(last, number=3)))
        ),
        "order of ids": encode_index(
            replace(raw, mappings=(*raw.mappings[:-1], replace(last, first_entry_id=FIRST_OFFSET)))
        ),
        "location": encode_index(
            replace(raw, mappings=(*raw.mappings[:-1], replace(last, position=900)))
        ),
        "data size": encode_index(replace(raw, data_size_bytes=1_100)),
        "no blocks": encode_index(RawIndex(data_size_bytes=5, metadata=raw.metadata, mappings=())),
        "metadata": encode_index(replace(raw, metadata=b"\xff" * 40)),
        "version": changed(found, format_version=2),
        "log size": changed(found, length=1_199),
        "points": changed(found, point_positions=[]),
        "a point": changed(found, point_positions=[*found.plan.points.positions[:-1], 777]),
        "order of points": changed(
            found, point_log_positions=list(reversed(found.plan.points.log_positions))
        ),
    }
    parse_index(index)
    for what, changed_index in bad.items():
        with pytest.raises(Corrupt):
            parse_index(changed_index)
            pytest.fail(f"{what} was not noticed")


def test_known_indexes_are_bounded_and_the_last_used_stay(path: Path) -> None:
    index = stored(log_of([300]), BLOCK, path).index
    content = ObjectContent(size_bytes=1, crc32c=2)
    known = KnownSegments(max_bytes=2 * (index.kept_bytes + 512 * 100))
    for key in ("a", "b"):
        known.keep(key, index, content)
    assert known.get("a") is not None
    known.keep("c", index, content)
    assert (known.get("b"), known.get("a") is None, known.get("c") is None) == (None, False, False)
    known.forget(("a", "unknown"))
    assert known.get("a") is None
    found = known.get("c")
    assert found is not None
    assert found.index.indexes == b""


def test_points_of_an_empty_log() -> None:
    points: PositionPoints = BlockPlanner(BLOCK).finish().points
    assert len(points) == 0


def test_ranges_of_an_empty_log_are_empty(path: Path) -> None:
    reader = Reader(stored(b"", BLOCK, path))
    assert reader.read(0, 10) == b""
    assert source_of(b"", path).log.size_bytes == 0
