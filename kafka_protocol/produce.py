"""Produce: the acks of a request, and the log start offset in its answer.

A request with acks=0 has no response and must not wait for one; answers of tiered topics show the
remote log start offset (H22). This module must not know which topics are tiered.
"""

import struct
from collections.abc import Callable

from kafka_protocol.apis import PRODUCE
from kafka_protocol.frames import RequestHeader, parse_response_header
from kafka_protocol.primitives import Buffer, Reader, WireError

LogStartLookup = Callable[[str | None, bytes | None, int], int | None]

_INT64 = struct.Struct(">q")
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST_WITH_TOPIC_ID = 13


def read_acks(frame: Buffer, header: RequestHeader) -> int:
    """Acks of a Produce request of any version up to v13: -1, 0 or 1. Raises `WireError`."""
    version = header.api_version
    reader = Reader(frame, header.body_offset, what=f"Produce v{version} request")
    if not PRODUCE.versions.has(version):
        raise reader.fail(f"only {PRODUCE.versions} are handled")
    if version >= _FIRST_WITH_TRANSACTIONAL_ID:
        _skip_string(reader, PRODUCE.is_flexible(version))
    return reader.int16()


def patch_produce_log_start(frame: Buffer, api_version: int, lookup: LogStartLookup) -> Buffer:
    """Overwrite log_start_offset (v5 on) where `lookup(name, topic_id, partition)` answers one.

    The frame has no length before it. A bytearray is patched in place and answered; another frame
    is copied if anything changes. A log start below 0 stays (H22). Raises `WireError`.
    """
    if not PRODUCE.versions.has(api_version):
        raise WireError(f"Produce v{api_version} response: only {PRODUCE.versions} are handled")
    if api_version < _FIRST_WITH_LOG_START:
        return frame
    patches = _patches(frame, api_version, lookup)
    if not patches:
        return frame
    patched = frame if isinstance(frame, bytearray) else bytearray(frame)
    for position, log_start_offset in patches:
        _INT64.pack_into(patched, position, log_start_offset)
    return patched


def _patches(frame: Buffer, version: int, lookup: LogStartLookup) -> list[tuple[int, int]]:
    _, position = parse_response_header(frame, PRODUCE, version)
    reader = Reader(frame, position, what=f"Produce v{version} response")
    flexible = PRODUCE.is_flexible(version)
    patches: list[tuple[int, int]] = []
    for _ in range(reader.count(flexible=flexible)):
        name: str | None = None
        topic_id: bytes | None = None
        if version >= _FIRST_WITH_TOPIC_ID:
            topic_id = reader.uuid()
        else:
            name = reader.compact_nullable_string() if flexible else reader.nullable_string()
        for _ in range(reader.count(flexible=flexible)):
            index, log_start_position, log_start_offset = _partition(reader, version)
            wanted = lookup(name, topic_id, index) if log_start_offset >= 0 else None
            if wanted is not None:
                patches.append((log_start_position, wanted))
        if flexible:
            reader.skip_tags()
    reader.int32()  # throttle_time_ms
    if flexible:
        reader.skip_tags()
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    return patches


def _partition(reader: Reader, version: int) -> tuple[int, int, int]:
    """Read one partition answer; (index, position of log_start_offset, log_start_offset)."""
    flexible = PRODUCE.is_flexible(version)
    index = reader.int32()
    reader.view(2 + 8 + 8)  # error_code, base_offset, log_append_time_ms
    log_start_position = reader.position
    log_start_offset = reader.int64()
    if version >= _FIRST_WITH_RECORD_ERRORS:
        for _ in range(reader.count(flexible=flexible)):
            reader.int32()  # batch_index
            _skip_string(reader, flexible)
            if flexible:
                reader.skip_tags()
        _skip_string(reader, flexible)  # error_message
    if flexible:
        reader.skip_tags()
    return index, log_start_position, log_start_offset


def _skip_string(reader: Reader, flexible: bool) -> None:
    size_bytes = reader.uvarint() - 1 if flexible else reader.int16()
    if size_bytes < -1:
        raise reader.fail(f"negative length {size_bytes}")
    reader.view(max(size_bytes, 0))
