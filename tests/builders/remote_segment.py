"""A segment in a real local store, with indexes as a broker would have made them."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from kip405.batches import batch_headers
from kip405.contracts import IndexType, SegmentWriter
from kip405.crc import crc32c
from kip405.ids import RemoteLogSegmentId, Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    build_indexes_object,
    encode_aborted,
)
from kip405.remote_index import EntryBuilder
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    FileSlice,
    Layout,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.store import STORE_ID


def indexes_of(
    log: bytes, base_offset: int, *, every: int, appended: int = 1
) -> tuple[bytes, bytes]:
    """Offset and time index with an entry at every n-th batch, and the last timestamp's at the end
    (LogSegment.append, onBecomeInactiveSegment). `appended`: so many batches came at once; an entry
    has the position of the first of them and the last offset of all, as brokers before 4.0 write.
    """
    offsets, times = bytearray(), bytearray()
    last_offsets = [header.last_offset for _, header in batch_headers(log)]
    newest = (-1, base_offset)
    written_ms = -1
    for count, (position, header) in enumerate(batch_headers(log)):
        if header.max_timestamp_ms > newest[0]:
            newest = (header.max_timestamp_ms, header.last_offset)
        if count and count % (every * appended) == 0:
            last = last_offsets[min(count + appended, len(last_offsets)) - 1]
            offsets += struct.pack(">ii", last - base_offset, position)
            if newest[0] > written_ms:
                times += struct.pack(">qi", newest[0], newest[1] - base_offset)
                written_ms = newest[0]
    if newest[0] > written_ms:
        times += struct.pack(">qi", newest[0], newest[1] - base_offset)
    return bytes(offsets), bytes(times)


def _entries(log: bytes, entry_bytes: int | None) -> dict[IndexType, bytes]:
    if entry_bytes is None:
        return {}
    builder = EntryBuilder("store/object.log", entry_bytes)
    for position, header in batch_headers(log):
        builder.batch(position, header)
    return {IndexType.REMOTE_LOG_INDEX: builder.finish(len(log))}


async def store_segment(
    store: SegmentWriter,
    scratch: Path,
    log: bytes,
    *,
    chunk_size_bytes: int = 1 << 20,
    index_every: int = 3,
    appended: int = 1,
    aborted: Sequence[AbortedTransaction] = (),
    number: int = 1,
    epochs: Mapping[int, int] | None = None,
    entry_bytes: int | None = None,
    layout: Layout = Layout.KAFKA,
) -> RemoteLogSegmentMetadata:
    """Copy whole batches as the segment `number`; its metadata as FINISHED. `epochs`: {epoch:
    start offset}, by default epoch 0 alone. `entry_bytes`: with remote log index entries, one for
    so many bytes; None: without, as earlier versions copied.
    """
    headers = [header for _, header in batch_headers(log)]
    base_offset = headers[0].base_offset
    offsets, times = indexes_of(log, base_offset, every=index_every, appended=appended)
    chunks = [log[at : at + chunk_size_bytes] for at in range(0, len(log), chunk_size_bytes)]
    indexes = build_indexes_object(
        {
            IndexType.OFFSET: offsets,
            IndexType.TIMESTAMP: times,
            IndexType.PRODUCER_SNAPSHOT: b"",
            IndexType.LEADER_EPOCH: b"",
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(aborted),
            IndexType.CHUNK_CHECKSUMS: ChunkChecksums(
                chunk_size_bytes=chunk_size_bytes, crcs=tuple(map(crc32c, chunks))
            ).encode(),
            **_entries(log, entry_bytes),
        }
    )
    custom = CustomMetadata(
        store_id=STORE_ID,
        indexes_size_bytes=len(indexes),
        log_crc32c=crc32c(log),
        indexes_crc32c=crc32c(indexes),
        layout=layout,
    )
    segment = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=PARTITION, id=Uuid(number.to_bytes(16, "big"))
        ),
        start_offset=base_offset,
        end_offset=headers[-1].last_offset,
        broker_id=1,
        max_timestamp_ms=max(header.max_timestamp_ms for header in headers),
        event_timestamp_ms=0,
        segment_leader_epochs=tuple(
            EpochEntry(epoch=epoch, start_offset=at)
            for epoch, at in (epochs or {0: base_offset}).items()
        ),
        segment_size_bytes=len(log),
        custom_metadata=custom.encode(),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    source = scratch / f"{number}.log"
    source.write_bytes(log)
    data = LogSegmentData(
        log=FileSlice(path=str(source), position=0, size_bytes=len(log)),
        log_crc32c=custom.log_crc32c,
        indexes=indexes,
        indexes_crc32c=custom.indexes_crc32c,
    )
    await store.copy_log_segment_data(segment.locator(CLUSTER_ID), data)
    return segment
