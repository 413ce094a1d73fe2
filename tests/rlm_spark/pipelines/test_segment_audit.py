"""The audit of one segment: each kind of damage is found, named by its object, and nothing else."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from kip405.checkpoints import encode_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    TransactionIndexEntry,
    build_indexes_object,
    encode_aborted,
    encode_transaction_index,
)
from kip405.segment_check import FlawKind
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    Layout,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm_spark.pipelines.findings import AuditedSegment
from rlm_spark.pipelines.segment_audit import BadObject, SegmentAudit
from tests.builders.remote_segment import indexes_of
from tests.kip405.batch_builder import batch, with_body

CHUNK_BYTES = 256
BASE = 1000
STEM = "cluster/t-id/0/00000000000000001000-segment"
ABORTED = AbortedTransaction(producer_id=7, first_offset=1003, last_offset=1008)
EPOCHS = (EpochEntry(epoch=3, start_offset=1000), EpochEntry(epoch=4, start_offset=1009))


def log_of() -> bytes:
    """Five batches of three records, all codecs, two epochs."""
    return b"".join(
        batch(BASE + 3 * number, epoch=3 if number < 3 else 4, compression=number)
        for number in range(5)
    )


def sections_of(log: bytes) -> dict[IndexType, bytes]:
    offsets, times = indexes_of(log, BASE, every=2)
    chunks = [log[at : at + CHUNK_BYTES] for at in range(0, len(log), CHUNK_BYTES)]
    checksums = ChunkChecksums(chunk_size_bytes=CHUNK_BYTES, crcs=tuple(map(crc32c, chunks)))
    return {
        IndexType.OFFSET: offsets,
        IndexType.TIMESTAMP: times,
        IndexType.TRANSACTION: encode_transaction_index([TransactionIndexEntry(ABORTED, 1009)]),
        IndexType.LEADER_EPOCH: encode_leader_epochs(EPOCHS),
        IndexType.ABORTED_TRANSACTIONS: encode_aborted([ABORTED]),
        IndexType.CHUNK_CHECKSUMS: checksums.encode(),
    }


@dataclass
class Stored:
    """A segment's two objects, and their metadata in the ledger (Objects)."""

    log_bytes: bytes | None
    indexes_bytes: bytes | None
    segment: AuditedSegment
    piece: int = 100

    def indexes(self) -> bytes:
        if self.indexes_bytes is None:
            raise BadObject(FlawKind.MISSING, "no such object")
        return self.indexes_bytes

    def log(self) -> Iterator[bytes]:
        if self.log_bytes is None:
            raise BadObject(FlawKind.MISSING, "no such object")
        for at in range(0, len(self.log_bytes), self.piece):
            yield self.log_bytes[at : at + self.piece]

    def audited(self) -> SegmentAudit:
        return SegmentAudit(segment=self.segment).run(self)

    def found(self) -> set[tuple[FlawKind, str]]:
        return {
            (one.kind, one.object_name.removeprefix(f"{STEM}.")) for one in self.audited().findings
        }


def stored(log: bytes, sections: dict[IndexType, bytes], **changes: object) -> Stored:
    """Copied as these bytes: the checksums in ledger and indexes are theirs."""
    indexes = build_indexes_object(sections)
    custom = CustomMetadata(
        store_id=Uuid(bytes(16)),
        indexes_size_bytes=len(indexes),
        log_crc32c=crc32c(log),
        indexes_crc32c=crc32c(indexes),
    )
    topic_partition = TopicIdPartition(topic_id=Uuid(b"t" * 16), topic="t", partition=0)
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=topic_partition, id=Uuid(b"s" * 16)),
        start_offset=BASE,
        end_offset=BASE + 14,
        broker_id=1,
        max_timestamp_ms=1_002,
        event_timestamp_ms=0,
        segment_leader_epochs=EPOCHS,
        segment_size_bytes=len(log),
        custom_metadata=custom.encode(),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    metadata = replace(metadata, **changes)  # type: ignore[arg-type]  # fields by name
    return Stored(log, indexes, AuditedSegment(metadata=metadata, objects_stem=STEM))


def whole() -> Stored:
    log = log_of()
    return stored(log, sections_of(log))


def copied(log: bytes) -> Stored:
    """A segment whose file was damaged at the broker before it was copied."""
    return stored(log, sections_of(log_of()) | chunks_of(log))


def chunks_of(log: bytes) -> dict[IndexType, bytes]:
    chunks = [log[at : at + CHUNK_BYTES] for at in range(0, len(log), CHUNK_BYTES)]
    checksums = ChunkChecksums(chunk_size_bytes=CHUNK_BYTES, crcs=tuple(map(crc32c, chunks)))
    return {IndexType.CHUNK_CHECKSUMS: checksums.encode()}


@pytest.mark.parametrize("piece", [1, 61, 100, 10_000])
def test_a_whole_segment_has_no_finding_and_is_read_to_its_end(piece: int) -> None:
    one = whole()
    one.piece = piece
    done = one.audited()
    assert done.findings == []
    assert done.records == 15
    assert done.size_bytes == len(one.log_bytes or b"") + len(one.indexes_bytes or b"")


def flipped(data: bytes | None, at: int) -> bytes:
    changed = bytearray(data or b"")
    changed[at] ^= 1
    return bytes(changed)


def test_every_flipped_byte_of_the_log_is_found() -> None:
    one = whole()
    log = one.log_bytes or b""
    for at in range(len(log)):
        one.log_bytes = flipped(log, at)
        kinds = one.found()
        assert (FlawKind.CHECKSUM, "log") in kinds, at
        assert kinds <= {
            (kind, "log") for kind in (FlawKind.CHECKSUM, FlawKind.BATCH, FlawKind.RECORDS)
        } | {(FlawKind.EPOCHS, "log")}, at


def test_every_flipped_byte_of_the_indexes_is_found() -> None:
    one = whole()
    indexes = one.indexes_bytes or b""
    for at in range(len(indexes)):
        one.indexes_bytes = flipped(indexes, at)
        assert (FlawKind.CHECKSUM, "indexes") in one.found(), at


def test_findings_of_another_layout_name_the_objects_that_are_in_the_store() -> None:
    one = whole()
    blocks = replace(one.segment.metadata.custom(), layout=Layout.BLOCKS).encode()
    in_blocks = replace(one.segment.metadata, custom_metadata=blocks)
    one.segment = replace(one.segment, metadata=in_blocks)
    one.log_bytes, one.indexes_bytes = flipped(one.log_bytes, 80), flipped(one.indexes_bytes, 8)
    assert {name for _, name in one.found()} == {"blocks", "blocks-index"}


def no_log(one: Stored) -> None:
    one.log_bytes = None


def no_indexes(one: Stored) -> None:
    one.indexes_bytes = None


def short(one: Stored) -> None:
    one.log_bytes = (one.log_bytes or b"")[:-5]


def long(one: Stored) -> None:
    one.log_bytes = (one.log_bytes or b"") + b"x"


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (no_log, {(FlawKind.MISSING, "log")}),
        (no_indexes, {(FlawKind.MISSING, "indexes")}),
        (
            short,
            {
                (FlawKind.SIZE, "log"),
                (FlawKind.CHECKSUM, "log"),
                (FlawKind.BATCH, "log"),
            },
        ),
        (
            long,
            {
                (FlawKind.SIZE, "log"),
                (FlawKind.CHECKSUM, "log"),
                (FlawKind.BATCH, "log"),
            },
        ),
    ],
)
def test_objects_that_are_missing_or_of_another_size(
    damage: Callable[[Stored], None], kinds: set[tuple[FlawKind, str]]
) -> None:
    one = whole()
    damage(one)
    assert one.found() == kinds


def test_what_was_damaged_before_it_was_copied_is_found_too() -> None:
    undecodable = with_body(batch(BASE), b"\xff" * 40) + log_of()[len(batch(BASE)) :]
    assert (FlawKind.RECORDS, "log") in copied(undecodable).found()
    again = log_of() + batch(BASE)
    assert (FlawKind.BATCH, "log") in copied(again).found()


def test_offsets_and_epochs_that_are_not_the_ledgers() -> None:
    log = log_of()
    sections = sections_of(log)
    ends_late = stored(log, sections, end_offset=BASE + 20)
    assert ends_late.found() == {(FlawKind.OFFSETS, "log")}
    ends_early = stored(log, sections, end_offset=BASE + 10)
    assert (FlawKind.BATCH, "log") in ends_early.found()
    other = (EpochEntry(epoch=3, start_offset=1000), EpochEntry(epoch=5, start_offset=1009))
    assert stored(log, sections, segment_leader_epochs=other).found() == {
        (FlawKind.EPOCHS, "log"),
        (FlawKind.EPOCHS, "indexes"),
    }


def test_h08_epochs_that_a_trim_took_from_the_lineage_are_no_finding() -> None:
    """The first recorded epoch begins above the segment: nothing is known of what is below."""
    log = log_of()
    recorded = (EpochEntry(epoch=4, start_offset=1009),)
    sections = sections_of(log) | {IndexType.LEADER_EPOCH: encode_leader_epochs(recorded)}
    assert stored(log, sections, segment_leader_epochs=recorded).found() == set()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({IndexType.ABORTED_TRANSACTIONS: None}, FlawKind.ABORTED),
        ({IndexType.ABORTED_TRANSACTIONS: b""}, FlawKind.ABORTED),
        ({IndexType.ABORTED_TRANSACTIONS: b"torn"}, FlawKind.INDEXES),
        ({IndexType.CHUNK_CHECKSUMS: None}, FlawKind.INDEXES),
        ({IndexType.OFFSET: None}, FlawKind.INDEXES),
        ({IndexType.OFFSET: struct.pack(">ii", 2, 5)}, FlawKind.INDEXES),
        ({IndexType.OFFSET: struct.pack(">ii", 2, len(batch(BASE)))}, FlawKind.INDEXES),
        ({IndexType.TIMESTAMP: struct.pack(">qiqi", 9, 1, 8, 2)}, FlawKind.INDEXES),
        ({IndexType.LEADER_EPOCH: encode_leader_epochs(EPOCHS[:1])}, FlawKind.EPOCHS),
    ],
)
def test_indexes_that_are_whole_and_wrong(
    changes: dict[IndexType, bytes | None], kind: FlawKind
) -> None:
    log = log_of()
    sections = sections_of(log)
    for section, content in changes.items():
        sections.pop(section)
        if content is not None:
            sections[section] = content
    assert stored(log, sections).found() == {(kind, "indexes")}


def test_metadata_without_checksums_is_a_finding_and_the_rest_is_checked() -> None:
    log = log_of()
    one = stored(log, sections_of(log), custom_metadata=None)
    done = one.audited()
    assert {finding.kind for finding in done.findings} == {FlawKind.METADATA}
    assert done.records == 15
