"""Produce: the acks of a request, and what is changed in its answer.

A request with acks=0 has no response and must not wait for one; answers of tiered topics show the
remote log start offset (H22), node endpoints other addresses, and refused topics the error that
their clients are meant to see (`kafka_protocol.produce_request`). This module must not know which
topics are tiered or refused.
"""

import struct
from collections.abc import Callable

from kafka_protocol.apis import PRODUCE
from kafka_protocol.error_codes import TOPIC_AUTHORIZATION_FAILED
from kafka_protocol.frames import RequestHeader
from kafka_protocol.node_addresses import (
    FIRST_PRODUCE_WITH_ENDPOINTS,
    NodeAddresses,
    rewrite_node_endpoints,
)
from kafka_protocol.primitives import Buffer, Reader, WireError
from kafka_protocol.produce_request import spoiled

LogStartLookup = Callable[[str | None, bytes | None, int], int | None]
Refuses = Callable[[str | None, bytes | None], bool]
"""Whether requests of clients for a topic with this name (up to v12) or id are refused."""

_Patch = tuple[int, bytes]
"""A position, and what is written there."""
_LOG_START_AT = 22  # behind index, error_code, base_offset and log_append_time_ms

_INT16 = struct.Struct(">h")
_INDEX_AND_ERROR = struct.Struct(">ih")
_INT64 = struct.Struct(">q")
_CLIENT_ID_AT = 8  # behind API key, version and correlation id
_NO_TAGS_NO_ID = b"\x00\x00"
_FIRST_WITH_THROTTLE = 1
_FIRST_WITH_APPEND_TIME = 2
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


def refuse_none(_: str | None, __: bytes | None) -> bool:
    """A Refuses: no topic is refused."""
    return False


def patch_produce_response(
    frame: Buffer,
    api_version: int,
    lookup: LogStartLookup,
    nodes: NodeAddresses | None = None,
    refuses: Refuses = refuse_none,
) -> Buffer:
    """Overwrite log_start_offset (v5 on) where `lookup(name, topic_id, partition)` answers one, the
    addresses of node endpoints (v10 on) by `nodes`, and index and error of refused partitions.

    The frame has no length before it. A bytearray is patched in place and answered, except for node
    endpoints; another frame is copied if anything changes. A log start below 0 stays (H22). Raises
    `WireError`.
    """
    if not PRODUCE.versions.has(api_version):
        raise WireError(f"Produce v{api_version} response: only {PRODUCE.versions} are handled")
    patches, tags_position = _patches(frame, api_version, lookup, refuses)
    has_endpoints = api_version >= FIRST_PRODUCE_WITH_ENDPOINTS and frame[tags_position] != 0
    if not patches and (nodes is None or not has_endpoints):
        return frame
    patched = frame if isinstance(frame, bytearray) else bytearray(frame)
    for position, changed in patches:
        patched[position : position + len(changed)] = changed
    if has_endpoints and nodes is not None:
        return rewrite_node_endpoints(patched, tags_position, nodes)
    return patched


def _patches(
    frame: Buffer, version: int, lookup: LogStartLookup, refuses: Refuses
) -> tuple[list[_Patch], int]:
    """What is written, and where the last tagged fields begin."""
    reader = Reader(frame, what=_RESPONSE_NAMES[version])
    flexible = PRODUCE.is_flexible(version)
    reader.int32()  # correlation id
    if flexible:
        reader.skip_tags()
    patches: list[_Patch] = []
    for _ in range(reader.count(flexible=flexible)):
        patches += _topic_patches(reader, version, lookup, refuses)
        if flexible:
            reader.skip_tags()
    if version >= _FIRST_WITH_THROTTLE:
        reader.int32()
    tags_position = reader.position
    if flexible:
        reader.skip_tags()
    if reader.remaining():
        raise reader.fail(f"{reader.remaining()} bytes left")
    return patches, tags_position


def _topic_patches(
    reader: Reader, version: int, lookup: LogStartLookup, refuses: Refuses
) -> list[_Patch]:
    """Of one topic, whose tagged fields are read next."""
    flexible = PRODUCE.is_flexible(version)
    name: str | None = None
    topic_id: bytes | None = None
    if version >= _FIRST_WITH_TOPIC_ID:
        topic_id = reader.uuid()
    else:
        name = reader.compact_nullable_string() if flexible else reader.nullable_string()
    is_refused = refuses(name, topic_id)
    patches: list[_Patch] = []
    for _ in range(reader.count(flexible=flexible)):
        start = reader.position
        index, log_start_offset = _partition(reader, version)
        if is_refused and index < 0:
            refusal = _INDEX_AND_ERROR.pack(spoiled(index), TOPIC_AUTHORIZATION_FAILED)
            patches.append((start, refusal))
        wanted = lookup(name, topic_id, index) if log_start_offset >= 0 else None
        if wanted is not None:
            patches.append((start + _LOG_START_AT, _INT64.pack(wanted)))
    return patches


def _usual_layout(version: int) -> tuple[struct.Struct, tuple[int, ...]]:
    """A partition answer without errors, and what its last fields are then."""
    if version >= _FIRST_FLEXIBLE:
        return struct.Struct(">ihqqqBBB"), (1, 0, 0)  # no record errors, no message, no tags
    if version >= _FIRST_WITH_RECORD_ERRORS:
        return struct.Struct(">ihqqqih"), (0, -1)
    return struct.Struct(">ihqqq"), ()


_USUAL = {
    version: _usual_layout(version)
    for version in range(_FIRST_WITH_LOG_START, PRODUCE.versions.high + 1)
}
_RESPONSE_NAMES = {
    version: f"Produce v{version} response" for version in range(PRODUCE.versions.high + 1)
}


def _partition(reader: Reader, version: int) -> tuple[int, int]:
    """Read one partition answer: index and log_start_offset, -1 where there is none."""
    if version >= _FIRST_WITH_LOG_START:
        layout, rest = _USUAL[version]
        start = reader.position
        if reader.remaining() >= layout.size:
            index, _, _, _, log_start_offset, *last = layout.unpack_from(reader.buffer, start)
            if tuple(last) == rest:
                reader.position = start + layout.size
                return index, log_start_offset
    return _any_partition(reader, version)


def _any_partition(reader: Reader, version: int) -> tuple[int, int]:
    """As `_partition`, also with errors and tagged fields, and before v5."""
    flexible = PRODUCE.is_flexible(version)
    index = reader.int32()
    reader.view(2 + 8)  # error_code, base_offset
    if version >= _FIRST_WITH_APPEND_TIME:
        reader.int64()
    log_start_offset = reader.int64() if version >= _FIRST_WITH_LOG_START else -1
    if version >= _FIRST_WITH_RECORD_ERRORS:
        for _ in range(reader.count(flexible=flexible)):
            reader.int32()  # batch_index
            reader.skip_string(flexible=flexible)
            if flexible:
                reader.skip_tags()
        reader.skip_string(flexible=flexible)  # error_message
    if flexible:
        reader.skip_tags()
    return index, log_start_offset
