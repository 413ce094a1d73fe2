"""Splices partitions into a Fetch response without copying record bytes of either tier.

Remote records replace an OFFSET_OUT_OF_RANGE of the broker, or its error-free answer at the high
watermark (H20). Everything else of the broker's frame is sent unchanged. This module must not know
where the records come from.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch.response import NO_POSITION, FetchedPartition, FetchResponse
from kafka_protocol.frames import frame_length
from kafka_protocol.primitives import MAX_INT32, Buffer, WireError, encode_uvarint

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD_V4 = struct.Struct(">ihqq")
_HEAD_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_NO_TAGS = b"\0"
_DIVERGING_EPOCH_HEAD = b"\1\0\x0d"  # one tagged field, number 0, of 13 bytes
_EPOCH_END = struct.Struct(">iq")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedPartition:
    """Replaces a partition's answer. Offsets are record offsets; the records are whole stored
    batches.

    `aborted_transactions`: (producer id, first offset) each, None = null as for read_uncommitted.
    `diverging_epoch`: (epoch, end offset), v12 on (KIP-595). The broker's own tagged fields are
    dropped: they belong to an error, or to an offset that the client did not request (H37).
    """

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] | None
    preferred_read_replica: int
    records: Sequence[Buffer]
    diverging_epoch: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedPartition:
    """Overwrites single fields of a partition's answer; None leaves them.

    A log start offset of the broker below 0 stays (H22), and so does a field that the version
    lacks. Of the records, the first `records_size_bytes` are kept.
    """

    log_start_offset: int | None = None
    preferred_read_replica: int | None = None
    records_size_bytes: int | None = None


def splice_fetch_response(
    frame: Buffer,
    response: FetchResponse,
    replacements: Mapping[tuple[int, int], SplicedPartition | PatchedPartition],
    *,
    throttle_time_ms: int | None = None,
) -> list[Buffer]:
    """The new frame as pieces to be written in order, its 4-byte length first.

    `replacements` maps (position in `response.topics`, position in its `partitions`). A bytearray
    is patched in place and must not change until the pieces are written; other frames are copied
    once if a field is patched. Raises `WireError` if the frame would be longer than 2 GiB.
    """
    patches = {k: v for k, v in replacements.items() if isinstance(v, PatchedPartition)}
    rewritten = {
        key: value
        for key, value in replacements.items()
        if isinstance(value, SplicedPartition) or value.records_size_bytes is not None
    }
    if not isinstance(frame, bytearray) and (patches or throttle_time_ms is not None):
        frame = bytearray(frame)
    if isinstance(frame, bytearray):
        if throttle_time_ms is not None:
            _INT32.pack_into(frame, response.throttle_time_ms_position, throttle_time_ms)
        for (topic, partition), patch in patches.items():
            patch_partition(frame, response.topics[topic].partitions[partition], patch)
    view = memoryview(frame)
    pieces: list[Buffer] = []
    position = 0
    for topic, partition in sorted(rewritten):
        answered = response.topics[topic].partitions[partition]
        if answered.start > position:
            pieces.append(view[position : answered.start])
        replacement = rewritten[topic, partition]
        if isinstance(replacement, SplicedPartition):
            pieces += _encode(answered, replacement, response.api_version)
        else:
            size_bytes = replacement.records_size_bytes or 0
            pieces += _cut(view, answered, size_bytes, response.api_version)
        position = answered.end
    if position < len(view):
        pieces.append(view[position:])
    return [frame_length(sum(map(len, pieces))), *pieces]


def patch_partition(
    frame: bytearray | memoryview, answered: FetchedPartition, patch: PatchedPartition
) -> None:
    """Overwrite single fields of a partition's answer in place; its records stay as they are."""
    if (
        patch.log_start_offset is not None
        and answered.log_start_offset >= 0
        and answered.log_start_offset_position != NO_POSITION
    ):
        _INT64.pack_into(frame, answered.log_start_offset_position, patch.log_start_offset)
    if (
        patch.preferred_read_replica is not None
        and answered.preferred_read_replica_position != NO_POSITION
    ):
        _INT32.pack_into(
            frame, answered.preferred_read_replica_position, patch.preferred_read_replica
        )


def overwrite_partition(
    frame: bytearray | memoryview,
    answered: FetchedPartition,
    spliced: SplicedPartition,
    version: int,
) -> None:
    """Replace the answer of a partition without records in place, its size unchanged: only the
    fields of a fixed size are replaced, its aborted transactions and tagged fields stay. Raises
    `WireError` for a partition that has records, is given some, or has a diverging epoch.
    """
    if answered.records_size > 0 or any(map(len, spliced.records)):
        raise WireError(f"Fetch v{version} response: records of an answer without any")
    if answered.diverging_epoch is not None or spliced.diverging_epoch is not None:
        raise WireError(f"Fetch v{version} response: a diverging epoch cannot be replaced in place")
    offsets = (spliced.high_watermark, spliced.last_stable_offset)
    head = (answered.index, spliced.error_code, *offsets)
    if version >= 5:
        _HEAD_V5.pack_into(frame, answered.start, *head, spliced.log_start_offset)
    else:
        _HEAD_V4.pack_into(frame, answered.start, *head)
    if answered.preferred_read_replica_position != NO_POSITION:
        _INT32.pack_into(
            frame, answered.preferred_read_replica_position, spliced.preferred_read_replica
        )


def _cut(
    view: memoryview, answered: FetchedPartition, size_bytes: int, version: int
) -> list[Buffer]:
    """The partition struct with the first bytes of its records only."""
    if not 0 <= size_bytes <= answered.records_size:
        raise WireError(f"{size_bytes} of {answered.records_size} bytes of records")
    if FETCH.is_flexible(version):
        length_position = answered.preferred_read_replica_position + _INT32.size
        length = encode_uvarint(size_bytes + 1)
    else:
        length_position = answered.records_position - _INT32.size
        length = _INT32.pack(size_bytes)
    start = answered.records_position
    return [
        view[answered.start : length_position],
        length,
        view[start : start + size_bytes],
        view[answered.tags_position : answered.end],
    ]


def _encode(answered: FetchedPartition, spliced: SplicedPartition, version: int) -> list[Buffer]:
    """The partition struct: its head, the record buffers as they are, its tagged fields."""
    flexible = FETCH.is_flexible(version)
    records_size = sum(map(len, spliced.records))
    if records_size >= MAX_INT32:
        raise WireError(f"Fetch v{version} response: {records_size} bytes of records")
    head = bytearray()
    offsets = (spliced.high_watermark, spliced.last_stable_offset)
    if version >= 5:
        head += _HEAD_V5.pack(
            answered.index, spliced.error_code, *offsets, spliced.log_start_offset
        )
    else:
        head += _HEAD_V4.pack(answered.index, spliced.error_code, *offsets)
    head += _aborted(spliced.aborted_transactions, flexible)
    if version >= 11:
        head += _INT32.pack(spliced.preferred_read_replica)
    head += encode_uvarint(records_size + 1) if flexible else _INT32.pack(records_size)
    pieces: list[Buffer] = [head, *(piece for piece in spliced.records if len(piece))]
    if flexible:
        pieces.append(_tags(spliced.diverging_epoch))
    return pieces


def _tags(diverging_epoch: tuple[int, int] | None) -> bytes:
    if diverging_epoch is None:
        return _NO_TAGS
    return _DIVERGING_EPOCH_HEAD + _EPOCH_END.pack(*diverging_epoch) + _NO_TAGS


def _aborted(aborted: tuple[tuple[int, int], ...] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else _INT32.pack(-1)
    encoded = bytearray(encode_uvarint(len(aborted) + 1) if flexible else _INT32.pack(len(aborted)))
    for producer_id, first_offset in aborted:
        encoded += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            encoded += _NO_TAGS
    return bytes(encoded)
