"""The golden files of PIP-17 and of the remote index files, read by the second readers."""

from dataclasses import replace
from pathlib import Path

from kip405.remote_index import decode_entries, index_files
from tests.formats.pip17_reader import find_entry, read_blocks, read_index
from tests.formats.remote_log_index_reader import (
    RemoteData,
    find_offset,
    read_log_index,
    read_offset_index,
    read_time_index,
)

FORMATS = Path(__file__).parent
_KEY = "01/kafka/orders-AAAAAAAAAAAAAAAAAAAAAQ/3/00000000000000005000-AAAAAAAAAAAAAAAAAAAAAg.log"
_STORE = "jF8s79t9SrG_PNqlwv7bAA"
_BEGIN_MS = 1_700_000_000_000


def golden(name: str) -> bytes:
    return (FORMATS / name).read_bytes()


def test_blocks() -> None:
    data, index = golden("blocks-data.blocks"), read_index(golden("blocks-index.blocks-index"))
    assert (index.data_length, index.header_length, index.sections) == (1_851, 128, b"")
    assert [(one.first_entry_id, one.part, one.position) for one in index.blocks] == [
        (1_000, 1, 0),
        (1_006, 2, 768),
        (1_012, 3, 1_536),
    ]
    blocks = read_blocks(data, index)
    assert [(one.length, one.padding_bytes) for one in blocks] == [(768, 20), (768, 20), (315, 0)]
    entries = [one for block in blocks for one in block.entries]
    assert [(one.id, len(one.data)) for one in entries] == [
        (1_000, 220),
        (1_003, 376),
        (1_006, 130),
        (1_009, 466),
        (1_012, 175),
    ]
    assert b"".join(one.data for one in entries) == golden("blocks-log.bin")
    for one in entries:
        assert int.from_bytes(one.data[:8], "big") == one.id  # the base offset of the batch
        assert find_entry(data, index, one.id + 1) == one
    # What the metadata says of the segment is ours; that it carries these sections is the text's.
    for part in (b"a producer snapshot", b"0\n3\n0 0\n3 4900\n4 7000000000\n"):
        assert part in index.metadata


def test_remote_log_index() -> None:
    first, last = read_log_index(golden("remote-log-index.bin"))
    assert (first.position, first.first_offset, first.last_offset) == (0, 5_000, 6_999)
    assert (last.position, last.first_offset, last.last_offset) == (159, 7_000, 7_250)
    assert [
        (one.first_timestamp - _BEGIN_MS, one.last_timestamp - _BEGIN_MS, one.data_length)
        for one in (first, last)
    ] == [(0, 5_000, 1_048_600), (4_000, 4_999, 1_000)]
    assert [one.rdi for one in (first, last)] == [
        RemoteData(store=_STORE, key=_KEY, position=0),
        RemoteData(store=_STORE, key=_KEY, position=first.data_length),
    ]


def test_remote_offset_index() -> None:
    log_index, offsets = golden("remote-log-index.bin"), golden("remote-offset-index.bin")
    entries = read_log_index(log_index)
    assert read_offset_index(offsets, 5_000, entries) == ((5_000, 0), (7_000, 159))
    found = [find_offset(log_index, 5_000, offsets, at) for at in (4_999, 5_000, 6_999, 7_000)]
    assert found == [None, entries[0], entries[0], entries[1]]


def test_remote_time_index() -> None:
    """The reader takes what follows a timestamp for a relative offset, as in Kafka's own time
    index. Ours is a position in the remotelogindex, which docs/reference/formats.md says; the
    draft's text allows both. So its offset less the base is the position.
    """
    log_index = golden("remote-log-index.bin")
    first, second = read_log_index(log_index)
    found = read_time_index(golden("remote-time-index.bin"), 5_000, (first, second))
    assert found == ((first.last_timestamp, 5_000 + first.position),)
    (at, one), (after, other) = decode_entries(log_index)
    later = replace(other, last_timestamp_ms=one.last_timestamp_ms + 1)
    _, times = index_files([(at, one), (after, later)], 5_000)
    assert read_time_index(times, 5_000, (first, second)) == (
        (first.last_timestamp, 5_000 + first.position),
        (first.last_timestamp + 1, 5_000 + second.position),
    )
