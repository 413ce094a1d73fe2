"""The formats of kip405 against golden files: today's code must read and write yesterday's bytes.

Files of a release are never changed and no test writes them; a format that must change gets a new
version and a new file. What each file says is spelled out here, so that bytes and meaning are both
pinned.
"""

from pathlib import Path

from kip405.checkpoints import encode_leader_epochs, parse_leader_epochs
from kip405.contracts import IndexType
from kip405.ids import Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    build_indexes_object,
    decode_aborted,
    encode_aborted,
)
from kip405.remote_index import (
    RemoteLogIndexEntry,
    SegmentRecord,
    decode_entries,
    decode_record,
    index_files,
)
from kip405.segments import CustomMetadata
from tests.kip405.segment_builder import lineage

FORMATS = Path(__file__).parent
LINEAGE = lineage({0: 0, 3: 4900, 4: 7_000_000_000})
ABORTED = (
    AbortedTransaction(4001, 5_000, 7_250),
    AbortedTransaction(4002, 6_999_999_999, 7_000_000_123),
)
LOG_SIZE_BYTES = 2_500_000
CHECKSUMS = ChunkChecksums(chunk_size_bytes=1_048_576, crcs=(0x00000001, 0xE3069283, 0xFFFFFFFF))


def golden(name: str) -> bytes:
    return (FORMATS / name).read_bytes()


def test_custom_metadata() -> None:
    data = golden("custom-metadata.bin")
    expected = CustomMetadata(
        store_id=Uuid.parse("jF8s79t9SrG_PNqlwv7bAA"),
        entropy_bits=8,
        indexes_size_bytes=70_000,
        log_crc32c=0xE3069283,
        indexes_crc32c=0x01020304,
        plugin=b"plugin's own",
    )
    assert CustomMetadata.decode(data) == expected
    assert expected.encode() == data
    # version, layout, store, entropy bits, size, two checksums, plugin
    assert data == bytes.fromhex(
        "01" "00" "8c5f2cefdb7d4ab1bf3cdaa5c2fedb00" "08" "00011170" "e3069283" "01020304"
    ) + b"plugin's own"  # fmt: skip


def test_leader_epoch_lineage() -> None:
    data = golden("leader-epoch-lineage.txt")
    assert parse_leader_epochs(data) == LINEAGE
    assert encode_leader_epochs(LINEAGE.entries) == data
    assert data == b"0\n3\n0 0\n3 4900\n4 7000000000\n"


def test_aborted_transactions() -> None:
    data = golden("aborted-transactions.bin")
    assert decode_aborted(data) == ABORTED
    assert encode_aborted(ABORTED) == data
    assert data[:24] == bytes.fromhex("0000000000000fa100000000000013880000000000001c52")


def test_chunk_checksums() -> None:
    data = golden("chunk-checksums.bin")
    assert ChunkChecksums.decode(data, LOG_SIZE_BYTES) == CHECKSUMS
    assert CHECKSUMS.encode() == data
    assert data == bytes.fromhex("0010000000000001e3069283ffffffff")


def test_indexes_object() -> None:
    data = golden("indexes-object.bin")
    sections: dict[IndexType, bytes] = {
        IndexType.OFFSET: bytes.fromhex("00000009000010040000001300002008"),
        IndexType.TIMESTAMP: bytes.fromhex("000000000000006400000013"),
        IndexType.PRODUCER_SNAPSHOT: b"a producer snapshot",
        IndexType.LEADER_EPOCH: golden("leader-epoch-lineage.txt"),
        IndexType.ABORTED_TRANSACTIONS: golden("aborted-transactions.bin"),
        IndexType.CHUNK_CHECKSUMS: golden("chunk-checksums.bin"),
    }
    parsed = IndexesObject.parse(data, check_sections=True)
    assert {one: bytes(parsed.section(one) or b"") for one in parsed.types} == sections
    assert parsed.section(IndexType.TRANSACTION) is None
    assert build_indexes_object(sections) == data
    # magic, version, six sections; the first is type 0 at byte 88 and 16 bytes long
    assert data[:6] == b"RLMI\x01\x06"
    assert data[6:15] == bytes.fromhex("000000005800000010")


REMOTE_OBJECT = (
    "jF8s79t9SrG_PNqlwv7bAA/01/kafka/orders-AAAAAAAAAAAAAAAAAAAAAQ/3/"
    "00000000000000005000-AAAAAAAAAAAAAAAAAAAAAg.log"
)
ENTRIES = (
    RemoteLogIndexEntry(
        first_offset=5_000,
        last_offset=6_999,
        first_timestamp_ms=1_700_000_000_000,
        last_timestamp_ms=1_700_000_005_000,
        data_size_bytes=1_048_600,
        rdi=f"{REMOTE_OBJECT}?0",
    ),
    RemoteLogIndexEntry(
        first_offset=7_000,
        last_offset=7_250,
        first_timestamp_ms=1_700_000_004_000,
        last_timestamp_ms=1_700_000_004_999,
        data_size_bytes=1_000,
        rdi=f"{REMOTE_OBJECT}?1048600",
    ),
)


def test_remote_log_index() -> None:
    data = golden("remote-log-index.bin")
    placed = list(decode_entries(data))
    assert tuple(entry for _, entry in placed) == ENTRIES
    assert b"".join(entry.encode() for entry in ENTRIES) == data
    # magic, length, checksum, offsets, timestamps, length of the data, length of the RDI
    assert data[:46] == bytes.fromhex(
        "0000" "009f" "72b0f207" "0000000000001388" "0000000000001b57"
        "0000018bcfe56800" "0000018bcfe57b88" "00100018" "0071"
    )  # fmt: skip
    assert data[46:159] == ENTRIES[0].rdi.encode()


def test_remote_offset_and_time_index() -> None:
    offsets, times = golden("remote-offset-index.bin"), golden("remote-time-index.bin")
    placed = list(decode_entries(golden("remote-log-index.bin")))
    assert index_files(placed, 5_000) == (offsets, times)
    assert offsets == bytes.fromhex("00000000" "00000000" "000007d0" "0000009f")  # fmt: skip
    assert times == bytes.fromhex("0000018bcfe57b88" "00000000")  # fmt: skip


def test_remote_segment_index() -> None:
    data = golden("remote-segment-index.bin")
    expected = SegmentRecord(
        segment_id=Uuid.parse("AAAAAAAAAAAAAAAAAAAAAg"),
        start_offset=5_000,
        end_offset=7_250,
        log_size_bytes=1_049_600,
        indexes_crc32c=0xE3069283,
        position=0,
        size_bytes=324,
        checksums=bytes.fromhex("0010000000000001e3069283"),
        aborted=golden("aborted-transactions.bin")[:24],
    )
    assert decode_record(data, 0) == (expected, len(data))
    assert expected.encode() == data
    assert data[:10] == bytes.fromhex("0000" "0000006a" "74c79bcf")  # fmt: skip
