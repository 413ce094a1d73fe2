"""Scans Fetch responses of all versions: headers of partitions, and the positions of their parts.

The proxy decides per partition and must leave record bytes, unknown tagged fields and node
endpoints untouched. This module must not know what a decision is based on.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from kafka_protocol.apis import FETCH
from kafka_protocol.primitives import Buffer, Reader, WireError, read_uvarint

NO_POSITION = -1

_TWO_INT32 = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_HEAD_V4 = struct.Struct(">ihqq")
_HEAD_V5 = struct.Struct(">ihqqq")
_LOG_START_AT = 22  # index 4, error 2, high watermark 8, last stable offset 8
_ABORTED_SIZE_BYTES = 16
_DIVERGING_EPOCH_TAG = 0
_EPOCH_END = struct.Struct(">iq")


class FetchedPartition(NamedTuple):
    """One partition of an answer; positions are in the frame, -1 = this version has no such field.

    [start, end) is the whole partition struct; `records_size` -1 = null records. `tags_position` is
    where its tagged fields begin (flexible versions); they reach to `end`. `diverging_epoch` is the
    epoch and the offset where it ended, if the broker says that the client's last fetched epoch is
    not in its history (KIP-595). A tuple, not a dataclass: a frozen dataclass would double the time
    of a scan.
    """

    index: int  # type: ignore[assignment]  # Kafka's word hides tuple.index, which nobody needs
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    preferred_read_replica: int
    start: int
    end: int
    log_start_offset_position: int
    preferred_read_replica_position: int
    records_position: int
    records_size: int
    tags_position: int
    diverging_epoch: tuple[int, int] | None


class FetchedTopic(NamedTuple):
    """Topic by name (up to v12) or by its 16-byte id (v13 on)."""

    name: str | None
    topic_id: bytes | None
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """The content of a Fetch answer without records; `tags_position` is -1 before v12.

    Below v7 there is no error code and no session: both are 0.
    """

    api_version: int
    correlation_id: int
    throttle_time_ms: int
    throttle_time_ms_position: int
    error_code: int
    session_id: int
    topics: tuple[FetchedTopic, ...]
    tags_position: int


def scan_fetch_response(frame: Buffer, api_version: int) -> FetchResponse:
    """Read a Fetch response frame (no length before it), v4 to v18. Raises `WireError`."""
    if not FETCH.versions.has(api_version):
        raise WireError(f"Fetch v{api_version} response: only {FETCH.versions} are handled")
    reader = Reader(frame, what=f"Fetch v{api_version} response")
    flexible = FETCH.is_flexible(api_version)
    correlation_id = reader.int32()
    if flexible:
        reader.skip_tags()
    throttle_time_ms_position = reader.position
    throttle_time_ms = reader.int32()
    error_code, session_id = (reader.int16(), reader.int32()) if api_version >= 7 else (0, 0)
    count = reader.count(flexible=flexible)
    scan = _scan_flexible if flexible else _scan_classic
    topics = []
    for _ in range(count):
        name = reader.string(flexible=flexible) if api_version <= 12 else None
        topic_id = reader.uuid() if api_version >= 13 else None
        partition_count = reader.count(flexible=flexible)
        try:
            partitions, reader.position = scan(
                reader.buffer, reader.position, partition_count, api_version
            )
        except (struct.error, IndexError, ValueError) as error:
            raise reader.fail(f"{partition_count} partitions expected: {error}") from error
        if flexible:
            reader.skip_tags()
        topics.append(FetchedTopic(name, topic_id, partitions))
    tags_position = reader.position if flexible else NO_POSITION
    if flexible:
        reader.skip_tags()
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    return FetchResponse(
        api_version=api_version,
        correlation_id=correlation_id,
        throttle_time_ms=throttle_time_ms,
        throttle_time_ms_position=throttle_time_ms_position,
        error_code=error_code,
        session_id=session_id,
        topics=tuple(topics),
        tags_position=tags_position,
    )


def aborted_transactions(
    frame: Buffer, answered: FetchedPartition, api_version: int
) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of each aborted transaction of a scanned partition, empty where
    the list is null. Raises `WireError`.
    """
    flexible = FETCH.is_flexible(api_version)
    head = _HEAD_V5 if api_version >= 5 else _HEAD_V4
    reader = Reader(
        frame, answered.start + head.size, what=f"Fetch v{api_version} aborted transactions"
    )
    found = []
    for _ in range(reader.count(flexible=flexible)):
        found.append((reader.int64(), reader.int64()))
        if flexible:
            reader.skip_tags()
    return tuple(found)


def fetched_partition_head(buffer: memoryview, version: int) -> FetchedPartition:
    """The partition that begins the buffer: whole if it has no records, else up to its records,
    where `end` is. Raises struct.error, IndexError or `WireError` where bytes are missing, and
    ValueError for lengths that no partition has.
    """
    flexible = FETCH.is_flexible(version)
    head = _HEAD_V5 if version >= 5 else _HEAD_V4
    index, error_code, high_watermark, last_stable, *log_start = head.unpack_from(buffer)
    position = head.size
    if flexible:
        position = _skip_aborted(buffer, position)
    else:
        (aborted,) = _INT32.unpack_from(buffer, position)
        position += 4 + max(aborted, 0) * _ABORTED_SIZE_BYTES
        if aborted < -1:
            raise ValueError(f"{aborted} aborted transactions")
    preferred, preferred_position = -1, NO_POSITION
    if version >= 11:
        preferred_position = position
        (preferred,) = _INT32.unpack_from(buffer, position)
        position += 4
    if flexible:
        records_size, position = read_uvarint(buffer, position)
        records_size -= 1
    else:
        (records_size,) = _INT32.unpack_from(buffer, position)
        position += 4
    if records_size < -1:
        raise ValueError(f"{records_size} bytes of records")
    end, diverging_epoch = position, None
    if flexible and records_size <= 0:
        diverging_epoch, end = _read_tags(buffer, position)
    return FetchedPartition(
        index,
        error_code,
        high_watermark,
        last_stable,
        log_start[0] if log_start else -1,
        preferred,
        0,
        end,
        _LOG_START_AT if log_start else NO_POSITION,
        preferred_position,
        position,
        records_size,
        position + max(records_size, 0),
        diverging_epoch,
    )


def _scan_flexible(
    buffer: memoryview, position: int, count: int, version: int
) -> tuple[tuple[FetchedPartition, ...], int]:
    """Partitions of v12 on. One loop without calls for the common case: it is the hot path."""
    head, int32 = _HEAD_V5.unpack_from, _INT32.unpack_from
    partitions = []
    for _ in range(count):
        start = position
        index, error_code, high_watermark, last_stable, log_start = head(buffer, start)
        position += 30
        aborted = buffer[position]
        if aborted <= 1:
            position += 1
        else:
            position = _skip_aborted(buffer, position)
        (preferred,) = int32(buffer, position)
        preferred_position = position
        records_size = buffer[position + 4]
        if records_size < 0x80:
            position += 5
        else:
            records_size, position = read_uvarint(buffer, position + 4)
        records_size -= 1
        records_position = position
        if records_size > 0:
            position += records_size
        tags_position = position
        diverging_epoch = None
        if buffer[position] == 0:  # raises IndexError when the records are cut off
            position += 1
        else:
            diverging_epoch, position = _read_tags(buffer, position)
        partitions.append(
            FetchedPartition(
                index,
                error_code,
                high_watermark,
                last_stable,
                log_start,
                preferred,
                start,
                position,
                start + _LOG_START_AT,
                preferred_position,
                records_position,
                records_size,
                tags_position,
                diverging_epoch,
            )
        )
    return tuple(partitions), position


def _scan_classic(
    buffer: memoryview, position: int, count: int, version: int
) -> tuple[tuple[FetchedPartition, ...], int]:
    """Partitions of v4 to v11: fixed-size lengths, no tagged fields."""
    size = len(buffer)
    has_log_start, has_preferred = version >= 5, version >= 11
    partitions = []
    for _ in range(count):
        start = position
        if has_log_start:
            index, error_code, high_watermark, last_stable, log_start = _HEAD_V5.unpack_from(
                buffer, start
            )
            position += _HEAD_V5.size
        else:
            index, error_code, high_watermark, last_stable = _HEAD_V4.unpack_from(buffer, start)
            log_start = -1
            position += _HEAD_V4.size
        (aborted,) = _INT32.unpack_from(buffer, position)
        position += 4 + max(aborted, 0) * _ABORTED_SIZE_BYTES
        preferred, preferred_position = -1, NO_POSITION
        if has_preferred:
            preferred_position = position
            preferred, records_size = _TWO_INT32.unpack_from(buffer, position)
            position += 8
        else:
            (records_size,) = _INT32.unpack_from(buffer, position)
            position += 4
        records_position = position
        position += max(records_size, 0)
        if position > size or min(aborted, records_size) < -1:
            raise ValueError(f"lengths {aborted} and {records_size} do not fit")
        partitions.append(
            FetchedPartition(
                index,
                error_code,
                high_watermark,
                last_stable,
                log_start,
                preferred,
                start,
                position,
                start + _LOG_START_AT if has_log_start else NO_POSITION,
                preferred_position,
                records_position,
                records_size,
                position,
                None,
            )
        )
    return tuple(partitions), position


def _skip_aborted(buffer: memoryview, position: int) -> int:
    """Behind the aborted transactions of a flexible version, each with its own tagged fields."""
    count, position = read_uvarint(buffer, position)
    for _ in range(count - 1):
        position += _ABORTED_SIZE_BYTES
        position = position + 1 if buffer[position] == 0 else skip_tags(buffer, position)
    return position


def _read_tags(buffer: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    """(epoch, end offset) of the diverging epoch among a partition's tagged fields, None without
    it; the position behind them.
    """
    tags = Reader(buffer, position, what="Fetch response")
    diverging_epoch = None
    for _ in range(tags.uvarint()):
        tag = tags.uvarint()
        payload = tags.view(tags.uvarint())
        if tag == _DIVERGING_EPOCH_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(payload)
            diverging_epoch = (epoch, end_offset)
    return diverging_epoch, tags.position


def skip_tags(buffer: memoryview, position: int) -> int:
    """The position behind tagged fields. Raises `WireError`."""
    tags = Reader(buffer, position, what="Fetch response")
    tags.skip_tags()
    return tags.position
