"""Scans and patches Fetch requests of all versions; decodes only what is needed.

The proxy takes over fetch sessions, and points partitions that are known to be remote at the
broker's high watermark (H20), by overwriting fixed-size fields in place. This module must not know
why.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kafka_protocol.apis import FETCH
from kafka_protocol.frames import RequestHeader
from kafka_protocol.primitives import UUID_SIZE_BYTES, Buffer, Reader

NO_POSITION = -1
CONSUMER_REPLICA_ID = -1
FINAL_SESSION_EPOCH = -1

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE_TAG = 1
_FIRST_WITH_LEADER_EPOCH = 9
_FIRST_WITH_FETCHED_EPOCH = 12
_NO_EPOCH = -1


class FetchPartition(NamedTuple):
    """One requested partition; `fetch_offset_position` is in the frame, and the other fields that
    can be patched are at fixed distances from it.

    A tuple, not a dataclass: a frozen dataclass would double the time of a scan.
    """

    index: int  # type: ignore[assignment]  # Kafka's word hides tuple.index, which nobody needs
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int
    fetch_offset_position: int


class FetchTopic(NamedTuple):
    """Topic by name (up to v12) or by its 16-byte id (v13 on)."""

    name: str | None
    topic_id: bytes | None
    partitions: tuple[FetchPartition, ...]


class FetchRequest(NamedTuple):
    """The content of a Fetch request; `*_position` are positions in its frame, -1 = no such
    field.
    """

    api_version: int
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    rack_id: str
    topics: tuple[FetchTopic, ...]
    max_wait_ms_position: int
    max_bytes_position: int
    session_position: int
    rack_position: int


class _PartitionLayout(NamedTuple):
    """Fixed part of a partition: offsets of the wanted fields from its start, and where those begin
    and end that vary while a consumer reads on: epochs and the offset.
    """

    layout: struct.Struct
    fetch_offset: int
    partition_max_bytes: int
    varying_start: int
    varying_end: int


def _partition_layout(version: int) -> _PartitionLayout:
    """(index, current_leader_epoch, fetch_offset, last_fetched_epoch, partition_max_bytes), of the
    epochs those that the version has; pad bytes for the rest.
    """
    if version >= _FIRST_WITH_FETCHED_EPOCH:
        return _PartitionLayout(struct.Struct(">iiqi8xi"), 8, 28, 4, 20)
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return _PartitionLayout(struct.Struct(">iiq8xi"), 8, 24, 4, 16)
    if version >= 5:
        return _PartitionLayout(struct.Struct(">iq8xi"), 4, 20, 4, 12)
    return _PartitionLayout(struct.Struct(">iqi"), 4, 12, 4, 12)


LAYOUTS = {
    version: _partition_layout(version)
    for version in range(FETCH.versions.low, FETCH.versions.high + 1)
}


def scan_fetch_request(frame: Buffer, header: RequestHeader) -> FetchRequest:
    """Read the fields of a Fetch request, v4 to v18. Raises `WireError`."""
    version = header.api_version
    reader = Reader(frame, header.body_offset, what=f"Fetch v{version} request")
    if version not in LAYOUTS:
        raise reader.fail(f"only {FETCH.versions} are handled")
    flexible = FETCH.is_flexible(version)
    replica_id = reader.int32() if version <= 14 else CONSUMER_REPLICA_ID
    max_wait_ms_position = reader.position
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    isolation_level = reader.int8()
    session_position = reader.position if version >= 7 else NO_POSITION
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    topics = tuple(_topic(reader, version) for _ in range(reader.count(flexible=flexible)))
    if version >= 7:
        _skip_forgotten(reader, version)
    rack_id = reader.string(flexible=flexible) if version >= 11 else ""
    rack_position = reader.position - len(rack_id.encode())
    if flexible:
        replica_id = _replica_id_of_tags(reader, version, replica_id)
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    return FetchRequest(
        api_version=version,
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        rack_id=rack_id,
        topics=topics,
        max_wait_ms_position=max_wait_ms_position,
        max_bytes_position=max_wait_ms_position + 8,
        session_position=session_position,
        rack_position=rack_position,
    )


def patch_fetch_request(
    frame: Buffer,
    request: FetchRequest,
    *,
    sessionless: bool,
    max_wait_ms: int | None,
    replacements: Mapping[FetchPartition, tuple[int, int]],
    max_bytes: int | None = None,
    leader_epochs: Mapping[FetchPartition, int] | None = None,
    hide_rack: bool = False,
) -> bytearray:
    """A copy of the frame (no length before it) with fields of fixed size overwritten.

    `sessionless` sets session id 0, epoch -1 (v7 on; KIP-227). `replacements` maps partitions of
    `request` to (fetch_offset, partition_max_bytes); their last_fetched_epoch (v12 on) becomes -1,
    as it is the epoch before the client's own offset and says nothing of the one asked for (H37).
    `leader_epochs` maps to current_leader_epoch (v9 on). `hide_rack` makes the client's rack one
    that no broker is in (v11 on; KIP-392). The original stays as it is: it may have to be asked
    again (H20).
    """
    patched = bytearray(frame)
    if sessionless and request.session_position != NO_POSITION:
        _SESSION.pack_into(patched, request.session_position, 0, FINAL_SESSION_EPOCH)
    if max_wait_ms is not None:
        _INT32.pack_into(patched, request.max_wait_ms_position, max_wait_ms)
    if max_bytes is not None:
        _INT32.pack_into(patched, request.max_bytes_position, max_bytes)
    layout = LAYOUTS[request.api_version]
    to_max_bytes = layout.partition_max_bytes - layout.fetch_offset
    for asked, (fetch_offset, partition_max_bytes) in replacements.items():
        position = asked.fetch_offset_position
        _INT64.pack_into(patched, position, fetch_offset)
        _INT32.pack_into(patched, position + to_max_bytes, partition_max_bytes)
        if request.api_version >= _FIRST_WITH_FETCHED_EPOCH:
            _INT32.pack_into(patched, position + _INT64.size, _NO_EPOCH)
    for asked, leader_epoch in (leader_epochs or {}).items():
        if request.api_version >= _FIRST_WITH_LEADER_EPOCH:
            _INT32.pack_into(patched, asked.fetch_offset_position - _INT32.size, leader_epoch)
    if hide_rack:
        size_bytes = len(request.rack_id.encode())
        patched[request.rack_position : request.rack_position + size_bytes] = bytes(size_bytes)
    return patched


def _topic(reader: Reader, version: int) -> FetchTopic:
    flexible = FETCH.is_flexible(version)
    name = reader.string(flexible=flexible) if version <= 12 else None
    topic_id = reader.uuid() if version >= 13 else None
    count = reader.count(flexible=flexible)
    try:
        partitions, reader.position = scan_partitions(
            reader.buffer, reader.position, count, version
        )
    except (struct.error, IndexError, ValueError) as error:
        raise reader.fail(f"{count} partitions expected: {error}") from error
    if flexible:
        reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def scan_partitions(
    buffer: memoryview, position: int, count: int, version: int
) -> tuple[tuple[FetchPartition, ...], int]:
    """The partitions of a topic, the first one at the position, and the position behind them.

    Numbers that are the same from one partition to the next are one object: a request may have very
    many partitions, and is kept while it is answered (H36).
    """
    layout, fetch_offset_at, _, _, _ = LAYOUTS[version]
    unpack, size_bytes = layout.unpack_from, layout.size
    flexible = FETCH.is_flexible(version)
    partitions = []
    epoch = fetched_epoch = _NO_EPOCH
    known_epoch, known_fetched_epoch, known_max_bytes = epoch, epoch, 0
    for _ in range(count):
        if version >= _FIRST_WITH_FETCHED_EPOCH:
            index, epoch, fetch_offset, fetched_epoch, max_bytes = unpack(buffer, position)
        elif version >= _FIRST_WITH_LEADER_EPOCH:
            index, epoch, fetch_offset, max_bytes = unpack(buffer, position)
        else:
            index, fetch_offset, max_bytes = unpack(buffer, position)
        if epoch != known_epoch:
            known_epoch = epoch
        if fetched_epoch != known_fetched_epoch:
            known_fetched_epoch = fetched_epoch
        if max_bytes != known_max_bytes:
            known_max_bytes = max_bytes
        partitions.append(
            FetchPartition(
                index,
                known_epoch,
                fetch_offset,
                known_fetched_epoch,
                known_max_bytes,
                position + fetch_offset_at,
            )
        )
        position += size_bytes
        if flexible:
            if buffer[position] == 0:
                position += 1
            else:
                tags = Reader(buffer, position, what=f"Fetch v{version} request")
                tags.skip_tags()
                position = tags.position
    return tuple(partitions), position


def _skip_forgotten(reader: Reader, version: int) -> None:
    flexible = FETCH.is_flexible(version)
    for _ in range(reader.count(flexible=flexible)):
        if version >= 13:
            reader.view(UUID_SIZE_BYTES)
        else:
            reader.string(flexible=flexible)
        reader.view(4 * reader.count(flexible=flexible))
        if flexible:
            reader.skip_tags()


def _replica_id_of_tags(reader: Reader, version: int, replica_id: int) -> int:
    """Skip the tagged fields of the body; ReplicaState (v15 on) starts with the replica id."""
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        payload = reader.view(reader.uvarint())
        if version >= 15 and tag == _REPLICA_STATE_TAG:
            replica_id = Reader(payload, what=f"{reader.what} ReplicaState").int32()
    return replica_id
