"""Produce: the acks of a request, and what is changed in its answer.

A request with acks=0 has no response and must not wait for one; answers of tiered topics show the
remote log start offset (H22), and node endpoints other addresses. This module must not know which
topics are tiered.
"""

import struct
from collections.abc import Callable

from kafka_protocol.apis import PRODUCE
from kafka_protocol.frames import RequestHeader
from kafka_protocol.node_addresses import (
    FIRST_PRODUCE_WITH_ENDPOINTS,
    NodeAddresses,
    rewrite_node_endpoints,
)
from kafka_protocol.primitives import Buffer, Reader, WireError

LogStartLookup = Callable[[str | None, bytes | None, int], int | None]

_LOG_START_AT = 22  # behind index, error_code, base_offset and log_append_time_ms

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_CLIENT_ID_AT = 8  # behind API key, version and correlation id
_NO_TAGS_NO_ID = b"\x00\x00"
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_WITH_LOG_START = 5
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST_FLEXIBLE = 9
_FIRST_WITH_TOPIC_ID = 13


def usual_acks(head: memoryview, api_version: int) -> int | None:
    """Acks of the Produce request that begins here (its length is left out): -1, 0 or 1.

    None where `read_acks` has to decide: bytes are missing, or the client sends tagged fields or a
    transactional id.
    """
    is_flexible = api_version >= _FIRST_FLEXIBLE
    try:
        client_id_bytes: int = _INT16.unpack_from(head, _CLIENT_ID_AT)[0]
        if client_id_bytes < -1:
            return None
        at = _CLIENT_ID_AT + _INT16.size + max(client_id_bytes, 0)
        if is_flexible and head[at : at + 2] != _NO_TAGS_NO_ID:
            return None
        if not is_flexible and api_version >= _FIRST_WITH_TRANSACTIONAL_ID:
            if _INT16.unpack_from(head, at)[0] != -1:
                return None
            at += 2
        acks: int = _INT16.unpack_from(head, at + 2 if is_flexible else at)[0]
    except struct.error:
        return None
    return acks


def read_acks(frame: Buffer, header: RequestHeader) -> int:
    """Acks of a Produce request of any version up to v13: -1, 0 or 1. Raises `WireError`."""
    version = header.api_version
    reader = Reader(frame, header.body_offset, what=f"Produce v{version} request")
    if not PRODUCE.versions.has(version):
        raise reader.fail(f"only {PRODUCE.versions} are handled")
    if version >= _FIRST_WITH_TRANSACTIONAL_ID:
        reader.skip_string(flexible=PRODUCE.is_flexible(version))
    return reader.int16()


def patch_produce_response(
    frame: Buffer, api_version: int, lookup: LogStartLookup, nodes: NodeAddresses | None = None
) -> Buffer:
    """Overwrite log_start_offset (v5 on) where `lookup(name, topic_id, partition)` answers one, and
    the addresses of node endpoints (v10 on) by `nodes`.

    The frame has no length before it. A bytearray is patched in place and answered, except for node
    endpoints; another frame is copied if anything changes. A log start below 0 stays (H22). Raises
    `WireError`.
    """
    if not PRODUCE.versions.has(api_version):
        raise WireError(f"Produce v{api_version} response: only {PRODUCE.versions} are handled")
    if api_version < _FIRST_WITH_LOG_START:
        return frame
    patches, tags_position = _patches(frame, api_version, lookup)
    has_endpoints = api_version >= FIRST_PRODUCE_WITH_ENDPOINTS and frame[tags_position] != 0
    if not patches and (nodes is None or not has_endpoints):
        return frame
    patched = frame if isinstance(frame, bytearray) else bytearray(frame)
    for position, log_start_offset in patches:
        _INT64.pack_into(patched, position, log_start_offset)
    if has_endpoints and nodes is not None:
        return rewrite_node_endpoints(patched, tags_position, nodes)
    return patched


def _patches(
    frame: Buffer, version: int, lookup: LogStartLookup
) -> tuple[list[tuple[int, int]], int]:
    """Log start offsets by position, and where the last tagged fields begin."""
    reader = Reader(frame, what=_RESPONSE_NAMES[version])
    flexible = PRODUCE.is_flexible(version)
    reader.int32()  # correlation id
    if flexible:
        reader.skip_tags()
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
    tags_position = reader.position
    if flexible:
        reader.skip_tags()
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    return patches, tags_position


def _usual_layout(version: int) -> tuple[struct.Struct, tuple[int, ...]]:
    """A partition answer without errors, and what its last fields are then."""
    if version >= _FIRST_FLEXIBLE:
        return struct.Struct(">ihqqqBBB"), (1, 0, 0)  # no record errors, no message, no tags
    if version >= _FIRST_WITH_RECORD_ERRORS:
        return struct.Struct(">ihqqqih"), (0, -1)
    return struct.Struct(">ihqqq"), ()


_VERSIONS_WITH_LOG_START = range(_FIRST_WITH_LOG_START, PRODUCE.versions.high + 1)
_USUAL = {version: _usual_layout(version) for version in _VERSIONS_WITH_LOG_START}
_RESPONSE_NAMES = {version: f"Produce v{version} response" for version in _VERSIONS_WITH_LOG_START}


def _partition(reader: Reader, version: int) -> tuple[int, int, int]:
    """Read one partition answer; (index, position of log_start_offset, log_start_offset)."""
    layout, rest = _USUAL[version]
    start = reader.position
    if reader.remaining() >= layout.size:
        index, _, _, _, log_start_offset, *last = layout.unpack_from(reader.buffer, start)
        if tuple(last) == rest:
            reader.position = start + layout.size
            return index, start + _LOG_START_AT, log_start_offset
    return _any_partition(reader, version)


def _any_partition(reader: Reader, version: int) -> tuple[int, int, int]:
    """As `_partition`, also with errors and tagged fields."""
    flexible = PRODUCE.is_flexible(version)
    index = reader.int32()
    reader.view(2 + 8 + 8)  # error_code, base_offset, log_append_time_ms
    log_start_position = reader.position
    log_start_offset = reader.int64()
    if version >= _FIRST_WITH_RECORD_ERRORS:
        for _ in range(reader.count(flexible=flexible)):
            reader.int32()  # batch_index
            reader.skip_string(flexible=flexible)
            if flexible:
                reader.skip_tags()
        reader.skip_string(flexible=flexible)  # error_message
    if flexible:
        reader.skip_tags()
    return index, log_start_position, log_start_offset
