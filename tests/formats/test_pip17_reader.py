"""The second reader of PIP-17's objects on bytes that are spelled out here, by the proposal."""

import pytest

from tests.formats.pip17_reader import (
    Index,
    Mapping,
    Unreadable,
    find_entry,
    read_block,
    read_blocks,
    read_index,
)

_HEADER_ZEROS = "00" * 100
_FIRST_BLOCK = (
    "fbdbabcb" "0000000000000080" "00000000000000a0" "0000000000000007" + _HEADER_ZEROS +
    "00000003" "0000000000000007" "616263"  # entry 7: abc
    "00000001" "0000000000000009" "64"      # entry 9: d
    "fedcdead"                              # 160 bytes are full
)  # fmt: skip
_LAST_BLOCK = (
    "fbdbabcb" "0000000000000080" "000000000000008e" "000000000000000c" + _HEADER_ZEROS +
    "00000002" "000000000000000c" "6566"    # entry 12: ef, and nothing more
)  # fmt: skip
_INDEX = (
    "de47de47" "0000004d" "000000000000012e" "0000000000000080" "00000002" "00000003"
    "6d6574"                                              # metadata: met
    "0000000000000007" "00000001" "0000000000000000"      # entry 7 -> part 1, position 0
    "000000000000000c" "00000002" "00000000000000a0"      # entry 12 -> part 2, position 160
    "5345"                                                # sections: SE
)  # fmt: skip
DATA = bytes.fromhex(_FIRST_BLOCK + _LAST_BLOCK)
INDEX = bytes.fromhex(_INDEX)


def test_the_index() -> None:
    assert read_index(INDEX) == Index(
        data_length=302,
        header_length=128,
        metadata=b"met",
        blocks=(
            Mapping(first_entry_id=7, part=1, position=0),
            Mapping(first_entry_id=12, part=2, position=160),
        ),
        sections=b"SE",
    )


def test_the_blocks() -> None:
    first, last = read_blocks(DATA, read_index(INDEX))
    assert [(one.id, one.position, one.data) for one in first.entries] == [
        (7, 128, b"abc"),
        (9, 143, b"d"),
    ]
    assert (first.length, first.padding_bytes) == (160, 4)
    assert [(one.id, one.data) for one in last.entries] == [(12, b"ef")]
    assert (last.position, last.length, last.padding_bytes) == (160, 142, 0)


def test_padding_is_cut_where_the_block_ends() -> None:
    block = bytearray(DATA[:159])
    block[19] = 0x9F
    assert read_block(bytes(block), 0).padding_bytes == 3
    block[-1] ^= 1
    with pytest.raises(Unreadable, match="wrong padding"):
        read_block(bytes(block), 0)


def test_an_entry_is_found_by_its_block() -> None:
    index = read_index(INDEX)
    found = {at: find_entry(DATA, index, at) for at in (6, 7, 8, 11, 12, 99)}
    assert {at: one and one.id for at, one in found.items()} == {
        6: None, 7: 7, 8: 7, 11: 9, 12: 12, 99: 12,
    }  # fmt: skip


@pytest.mark.parametrize(
    "position", [*range(32), *range(35, 35 + 2 * 20)], ids=lambda at: f"byte-{at}"
)
def test_no_flipped_byte_of_an_index_passes(position: int) -> None:
    """The metadata and the sections are opaque here; every other byte is one of the text's."""
    damaged = bytearray(INDEX)
    damaged[position] ^= 0x40
    with pytest.raises(Unreadable):
        read_blocks(DATA, read_index(bytes(damaged)))


def test_no_flipped_byte_of_a_header_or_a_padding_passes() -> None:
    index = read_index(INDEX)
    data_positions = {*range(140, 143), 155, *range(300, 302)}
    for position in set(range(len(DATA))) - data_positions:
        damaged = bytearray(DATA)
        damaged[position] ^= 0x40
        try:
            read_blocks(bytes(damaged), index)
        except Unreadable:
            continue
        assert position in range(147, 155), position  # the id of an entry that is not the first


@pytest.mark.parametrize("length", [0, 31, 47, 60, 76])
def test_a_cut_index_is_refused(length: int) -> None:
    with pytest.raises(Unreadable):
        read_index(INDEX[:length])
