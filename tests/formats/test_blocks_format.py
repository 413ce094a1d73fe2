"""The objects of the layout `blocks` against golden files; see test_kip405_formats.

The log has five batches, and its blocks have 768 bytes: two of two batches with 20 bytes of filling
each, and an exact one.
"""

import hashlib
import struct
from pathlib import Path

from kip405.crc import crc32c
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.index import build_index, parse_index
from rsm_plugins.blocks.reading import PositionTable, batches_in, reads_of
from rsm_plugins.blocks.source import data_pieces, plan_of
from rsm_plugins.v1.blocks_pb2 import BlocksMetadata
from tests.formats.test_kip405_formats import FORMATS, golden

BLOCK_BYTES = 768
LOG, DATA, INDEX = "blocks-log.bin", "blocks-data.blocks", "blocks-index.blocks-index"
SHA256 = {
    DATA: "da6aaec813ec8c824b7234e16c5d0224b7f9abebb5219a0413efc03b25f94599",
    INDEX: "5388b8f123431ced65260c173c5c8894006b3d5a28c84896e6be693679139fe2",
}
PARTITION = TopicIdPartition(
    topic_id=Uuid.parse("jF8s79t9SrG_PNqlwv7bAA"), topic="orders", partition=3
)
LOCATOR = SegmentLocator(
    cluster_id="kafkaCluster1",
    segment_id=RemoteLogSegmentId(
        topic_id_partition=PARTITION, id=Uuid.parse("AAECAwQFBgcICQoLDA0ODw")
    ),
    start_offset=1_000,
    custom_metadata=None,
)


def test_what_is_written(tmp_path: Path) -> None:
    log, indexes = golden(LOG), golden("indexes-object.bin")
    path = tmp_path / "log"
    path.write_bytes(log)
    data = LogSegmentData(
        log=FileSlice(path=str(path), position=0, size_bytes=len(log)),
        log_crc32c=crc32c(log),
        indexes=indexes,
        indexes_crc32c=crc32c(indexes),
        end_offset=1_014,
    )
    plan = plan_of(data, BLOCK_BYTES)
    assert b"".join(data_pieces(plan, data)) == golden(DATA)
    assert build_index(plan, LOCATOR, data) == golden(INDEX)
    found = {name: hashlib.sha256(golden(name)).hexdigest() for name in SHA256}
    assert found == SHA256


def test_what_is_read() -> None:
    log, data, index = golden(LOG), golden(DATA), parse_index(golden(INDEX))
    assert bytes(index.indexes) == golden("indexes-object.bin")
    assert (index.log_size_bytes, index.data_size_bytes) == (len(log), len(data))
    for start in range(0, len(log), 50):
        wanted = ByteRange(start=start, end=start + 700)
        reads = reads_of(index, PositionTable(index), wanted)
        runs = [run for one in reads for run in batches_in(one, data[one.start : one.end])[0]]
        assert b"".join(runs) == log[start : start + 700]


def test_the_data_object_byte_for_byte() -> None:
    data, log = golden(DATA), golden(LOG)
    header = bytes.fromhex(
        "fbdbabcb" "0000000000000080" "0000000000000300" "00000000000003e8"
    )  # fmt: skip
    assert data[:128] == header + bytes(100)
    (size,) = struct.unpack_from(">i", log, 8)
    first = log[: 12 + size]
    assert data[128:140] == struct.pack(">iq", len(first), 1_000)
    assert data[140 : 140 + len(first)] == first
    assert data[748:768] == bytes.fromhex("fedcdead" * 5)
    assert data[1_536:1_564] == bytes.fromhex(
        "fbdbabcb" "0000000000000080" "000000000000013b" "00000000000003f4"
    )  # fmt: skip
    assert len(data) == 1_536 + 0x13B


def test_the_index_object_byte_for_byte() -> None:
    index = golden(INDEX)
    assert index[:32] == bytes.fromhex(
        "de47de47" "000001cd" "000000000000073b" "0000000000000080" "00000003" "00000171"
    )  # fmt: skip
    assert index[32 + 0x171 :] == bytes.fromhex(
        "00000000000003e8" "00000001" "0000000000000000"
        "00000000000003ee" "00000002" "0000000000000300"
        "00000000000003f4" "00000003" "0000000000000600"
    )  # fmt: skip
    metadata = BlocksMetadata.FromString(index[32 : 32 + 0x171])
    # Fields 1 to 5 as of BookKeeper's LedgerMetadataFormat, with the bytes of every Pulsar.
    assert index[32:44] == bytes.fromhex("0801" "1001" "18d70a" "20f407" "2803")  # fmt: skip
    assert (metadata.format_version, metadata.cluster_id) == (1, "kafkaCluster1")
    assert (metadata.topic_id, metadata.topic) == (PARTITION.topic_id.raw, "orders")
    assert (metadata.partition, metadata.segment_id) == (3, LOCATOR.segment_id.id.raw)
    assert (metadata.start_offset, metadata.end_offset) == (1_000, 1_014)
    assert metadata.log_crc32c == crc32c(golden(LOG))
    assert metadata.block_size_bytes == BLOCK_BYTES
    held = [(one.log_position, one.log_size_bytes, one.entry_count) for one in metadata.blocks]
    assert held == [(0, 596, 2), (596, 596, 2), (1_192, 175, 1)]
    points = (list(metadata.point_log_positions), list(metadata.point_positions))
    assert points == ([0], [128])
    assert (FORMATS / INDEX).stat().st_size == 0x1CD
