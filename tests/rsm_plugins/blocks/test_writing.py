"""What blocks are made of a log: borders, filling, exact sizes, checksums, and the index object.

The expected bytes are made here by hand, from the text of PIP-17.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.crc import crc32c
from kip405.errors import Corrupt, Fenced
from rsm_plugins.blocks.format import decode_index
from rsm_plugins.blocks.plan import BlockPlanner, BlocksPlan
from rsm_plugins.blocks.source import block_pieces, data_pieces, plan_of
from rsm_plugins.v1.blocks_pb2 import BlocksMetadata
from tests.rsm_plugins.blocks.logs import (
    FIRST_OFFSET,
    INDEXES,
    LOCATOR,
    Stored,
    batch_of,
    log_of,
    source_of,
    stored,
)

BLOCK = 1_000
ROOM = BLOCK - 128  # for entries
SIZES = st.lists(st.integers(26, 700), min_size=1, max_size=40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "source"


def by_hand(batches: Sequence[bytes], block_bytes: int) -> bytes:
    """The data object, written as simply as its description is."""
    blocks: list[list[bytes]] = []
    for batch in batches:
        entry = struct.pack(">i", len(batch)) + batch[:8] + batch
        if not blocks or 128 + sum(map(len, blocks[-1])) + len(entry) > block_bytes:
            blocks.append([])
        blocks[-1].append(entry)
    data = b""
    for number, entries in enumerate(blocks, 1):
        exact = 128 + sum(map(len, entries))
        size = exact if number == len(blocks) else block_bytes
        header = b"\xfb\xdb\xab\xcb" + struct.pack(">qq", 128, size) + entries[0][4:12]
        filled = (b"\xfe\xdc\xde\xad" * size)[: size - exact]
        data += header + bytes(128 - len(header)) + b"".join(entries) + filled
    return data


def batches_of(sizes: Sequence[int]) -> list[bytes]:
    return [batch_of(FIRST_OFFSET + 3 * index, size) for index, size in enumerate(sizes)]


def check(found: Stored, batches: Sequence[bytes], block_bytes: int) -> None:
    assert found.data == by_hand(batches, block_bytes)
    assert found.plan.data_size_bytes == len(found.data)
    assert found.plan.data_crc32c == crc32c(found.data)
    for block, block_crc in zip(found.plan.blocks, found.plan.block_crcs, strict=True):
        assert crc32c(found.data[block.position : block.end]) == block_crc


@given(sizes=SIZES)
def test_random_batches(sizes: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "random"
    check(stored(log_of(sizes), BLOCK, path), batches_of(sizes), BLOCK)


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5, 13, 37])
def test_an_entry_that_leaves_so_many_bytes_of_a_block(left: int, path: Path) -> None:
    """Nothing, less than a pattern, and less than an entry's header are filled."""
    sizes = [300, ROOM - 312 - 12 - left, 200]
    found = stored(log_of(sizes), BLOCK, path)
    check(found, batches_of(sizes), BLOCK)
    assert [block.size_bytes for block in found.plan.blocks] == [BLOCK, 128 + 212]
    assert found.plan.blocks[0].end - found.plan.blocks[0].entries_end == left


def test_an_entry_that_is_one_byte_too_large_begins_a_block(path: Path) -> None:
    found = stored(log_of([300, ROOM - 312 - 12 + 1]), BLOCK, path)
    assert [block.entry_count for block in found.plan.blocks] == [1, 1]


def test_the_last_block_is_exact_also_if_it_is_full(path: Path) -> None:
    found = stored(log_of([ROOM - 12, ROOM - 12]), BLOCK, path)
    assert [block.size_bytes for block in found.plan.blocks] == [BLOCK, BLOCK]
    assert found.data.count(b"\xfe\xdc\xde\xad") == 0


@pytest.mark.parametrize(("size", "block_bytes"), [(ROOM - 11, 2 * BLOCK), (2_500, 3 * BLOCK)])
def test_a_batch_larger_than_a_block_takes_larger_blocks(
    size: int, block_bytes: int, path: Path
) -> None:
    """The smallest multiple of the block size in which it fits, for the whole segment."""
    sizes = [300, size, 300, 300]
    found = stored(log_of(sizes), BLOCK, path)
    check(found, batches_of(sizes), block_bytes)
    metadata = BlocksMetadata.FromString(bytes(decode_index(found.index_bytes).metadata))
    assert metadata.block_size_bytes == found.plan.block_size_bytes == block_bytes


def test_an_empty_log_has_no_block(path: Path) -> None:
    found = stored(b"", BLOCK, path)
    assert (found.data, found.index.blocks, found.plan.data_crc32c) == (b"", (), 0)


@given(st.lists(st.integers(26, 700), max_size=12), st.integers(1, 100))
def test_every_cut_of_the_log_gives_the_same_plan(sizes: list[int], piece: int) -> None:
    log = log_of(sizes)
    whole, cut = BlockPlanner(BLOCK, interval_bytes=500), BlockPlanner(BLOCK, interval_bytes=500)
    whole.feed(log)
    for at in range(0, len(log), piece):
        cut.feed(log[at : at + piece])
    assert cut.finish() == whole.finish()


def test_points_are_the_batches_that_hold_multiples_of_the_interval() -> None:
    sizes = [200, 400, 100, 700, 300, 26]
    batches = batches_of(sizes)
    planner = BlockPlanner(BLOCK, interval_bytes=500)
    planner.feed(b"".join(batches))
    points = planner.finish().points
    data = by_hand(batches, BLOCK)
    starts = [sum(sizes[:count]) for count in range(len(sizes))]
    holding = {max(start for start in starts if start <= at) for at in range(0, sum(sizes), 500)}
    assert list(points.log_positions) == sorted(holding)
    for log_position, position in zip(points.log_positions, points.positions, strict=True):
        batch = batches[starts.index(log_position)]
        assert data[position + 12 : position + 12 + len(batch)] == batch


def test_the_index_object_is_as_described(path: Path) -> None:
    found = stored(log_of([500, 500, 500]), BLOCK, path)
    index, data = found.index_bytes, found.data
    magic, size, data_size, header, count, metadata_size = struct.unpack_from(">4siqqii", index)
    assert magic == b"\xde\x47\xde\x47"
    assert (size, data_size, header, count) == (len(index), len(data), 128, 3)
    mappings = [struct.unpack_from(">qiq", index, 32 + metadata_size + 20 * one) for one in (0, 1)]
    assert mappings == [(FIRST_OFFSET, 1, 0), (FIRST_OFFSET + 3, 2, BLOCK)]
    metadata = BlocksMetadata.FromString(index[32 : 32 + metadata_size])
    partition = LOCATOR.segment_id.topic_id_partition
    assert (metadata.topic, metadata.partition) == (partition.topic, partition.partition)
    assert metadata.segment_id == LOCATOR.segment_id.id.raw
    assert (metadata.start_offset, metadata.end_offset) == (FIRST_OFFSET, 9_999)
    assert (metadata.indexes, metadata.log_crc32c) == (INDEXES, crc32c(found.log))
    assert (metadata.length, metadata.last_entry_id, metadata.state) == (1_500, FIRST_OFFSET + 6, 3)
    assert found.index.blocks == found.plan.blocks
    assert found.index.points == found.plan.points


def test_a_log_of_another_checksum_is_not_stored(path: Path) -> None:
    source = source_of(log_of([300]), path)
    path.write_bytes(b"before" + log_of([300])[:-1] + b"X" + b"after")
    with pytest.raises(Corrupt, match="CRC-32C"):
        plan_of(source, BLOCK)


@pytest.mark.parametrize(
    ("log", "match"),
    [
        (log_of([300]) + b"x" * 11, "ends inside a batch"),
        (log_of([300])[:-1], "ends inside a batch"),
        (batch_of(5, 100) + batch_of(5, 100), "offset 5 after 5"),
        (bytes(100), "claims 12 bytes"),
        (struct.pack(">qi", 0, 2**31 - 100) + bytes(60), "a batch of 2147483560 bytes"),
    ],
)
def test_a_log_that_is_not_whole_batches_is_not_stored(log: bytes, match: str, path: Path) -> None:
    with pytest.raises(Corrupt, match=match):
        stored(log, BLOCK, path)


def test_a_file_that_was_cut_short_is_fenced(path: Path) -> None:
    source = source_of(log_of([300, 300]), path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(Fenced, match="left to copy"):
        plan_of(source, BLOCK)


@pytest.mark.parametrize("at", [0, 5, 9, 20, 450, 869])
def test_a_file_that_changes_after_the_plan_is_never_a_whole_block(at: int, path: Path) -> None:
    """Also where only a length or an offset changed; the last piece is withheld."""
    source = source_of(log_of([300, 570]), path)
    plan = plan_of(source, 5_000)
    content = bytearray(path.read_bytes())
    content[6 + at] ^= 1
    path.write_bytes(content)
    given_out = 0
    with pytest.raises(Corrupt):
        for piece in block_pieces(plan, plan.blocks[0], source):
            given_out += len(piece)
    assert given_out < plan.blocks[0].size_bytes


def test_blocks_are_made_in_pieces_and_again(path: Path) -> None:
    """A large log never is in memory as a whole, and each block can be made at any time."""
    sizes = [26 + (index * 7_919) % 90_000 for index in range(60)]
    found = stored(log_of(sizes), 700_000, path)
    check(found, batches_of(sizes), 700_000)
    pieces = list(data_pieces(found.plan, found.source))
    assert max(map(len, pieces)) < 400_000
    plan: BlocksPlan = found.plan
    for block in reversed(plan.blocks):
        made = b"".join(block_pieces(plan, block, found.source))
        assert made == found.data[block.position : block.end]
    assert all(one.end == two.position for one, two in pairwise(plan.blocks))
