"""A range is split into chunks of which each is right or an error, whatever its neighbours are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.crc import crc32c
from kip405.errors import Corrupt, NotFound, Unavailable
from kip405.indexes import ChunkChecksums
from kip405.segments import FileSlice
from rlm.reading.chunk_memory import ChunkMemory
from rlm.reading.source import byte_range, runs, verified

CHUNK = 10
LOG = bytes(range(95))
CHUNKS = [LOG[at : at + CHUNK] for at in range(0, len(LOG), CHUNK)]
CHECKSUMS = ChunkChecksums(chunk_size_bytes=CHUNK, crcs=tuple(map(crc32c, CHUNKS)))


@given(st.integers(0, 9), st.integers(1, 10), st.sampled_from([bytes, bytearray, memoryview]))
def test_good_bytes_give_every_chunk(
    start: int, count: int, kind: type[bytes] | type[bytearray] | type[memoryview]
) -> None:
    numbers = range(start, min(start + count, 10))
    wanted = byte_range(numbers, CHUNK, len(LOG))
    landed = verified(
        kind(LOG[wanted.start : wanted.end]), numbers, CHECKSUMS, len(LOG), "s", ChunkMemory()
    )
    assert landed == {number: CHUNKS[number] for number in numbers}


def test_chunks_do_not_hold_the_range_they_came_in() -> None:
    given = bytearray(LOG[:10])
    landed = verified(given, range(0, 1), CHECKSUMS, len(LOG), "s", ChunkMemory())
    given[:] = bytes(10)
    assert landed == {0: LOG[:10]}


@given(st.integers(20, 79), st.integers(0, 7))
def test_g09_a_flipped_bit_spoils_one_chunk(at: int, bit: int) -> None:
    data = bytearray(LOG[20:80])
    data[at - 20] ^= 1 << bit
    landed = verified(bytes(data), range(2, 8), CHECKSUMS, len(LOG), "segment x", ChunkMemory())
    bad = [number for number, found in landed.items() if isinstance(found, Corrupt)]
    assert bad == [at // CHUNK]
    assert isinstance(landed[bad[0]], Corrupt)
    assert f"chunk {bad[0]} of segment x" in str(landed[bad[0]])


@given(st.integers(0, 94))
def test_g09_of_a_short_answer_the_whole_chunks_are_good(size: int) -> None:
    landed = verified(LOG[:size], range(10), CHECKSUMS, len(LOG), "s", ChunkMemory())
    good = [number for number, found in landed.items() if not isinstance(found, Corrupt)]
    assert good == list(range(size // CHUNK))
    assert all(isinstance(landed[number], Corrupt) for number in range(size // CHUNK, 10))


def test_g09_more_bytes_than_asked_for_are_not_believed() -> None:
    landed = verified(LOG[:31], range(3), CHECKSUMS, len(LOG), "s", ChunkMemory())
    assert all(isinstance(found, Corrupt) for found in landed.values())


def test_a_slice_of_a_file_is_read_chunk_by_chunk(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"head" + LOG)
    found = FileSlice(path=str(path), position=4 + 20, size_bytes=75)
    landed = verified(found, range(2, 10), CHECKSUMS, len(LOG), "s", ChunkMemory())
    assert landed == {number: CHUNKS[number] for number in range(2, 10)}
    short = FileSlice(path=str(path), position=4 + 20, size_bytes=15)
    landed = verified(short, range(2, 5), CHECKSUMS, len(LOG), "s", ChunkMemory())
    assert landed[2] == CHUNKS[2]
    assert [type(landed[number]) for number in (3, 4)] == [Corrupt, Corrupt]


def test_h25_an_object_that_is_gone_is_not_found_and_other_files_are_unavailable(
    tmp_path: Path,
) -> None:
    gone = FileSlice(path=str(tmp_path / "gone"), position=0, size_bytes=20)
    folder = FileSlice(path=str(tmp_path), position=0, size_bytes=20)
    lent = FileSlice(path=str(tmp_path / "gone"), position=0, size_bytes=20, keeper=object())
    for found, kind in ((gone, NotFound), (folder, Unavailable), (lent, Unavailable)):
        landed = verified(found, range(2), CHECKSUMS, len(LOG), "s", ChunkMemory())
        assert [type(one) for one in landed.values()] == [kind, kind]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([3], [range(3, 4)]),
        ([1, 2, 3, 7, 9, 10], [range(1, 4), range(7, 8), range(9, 11)]),
    ],
)
def test_runs(numbers: list[int], expected: list[range]) -> None:
    assert list(runs(numbers)) == expected
