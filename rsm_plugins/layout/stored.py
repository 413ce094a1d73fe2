"""What a copy stored: size and CRC-32C of each of a segment's objects. Pure.

In the layout `kafka` the objects are the log and the indexes object as they were given, so that the
custom metadata has their sizes and checksums. In every other layout the plugin answers them, as its
bytes of the envelope (at most 64), big-endian:

    u8 version 1, u8 count, count times (u64 size in bytes, u32 CRC-32C), then what is the plugin's

The objects are in the order of `keys.DATA_OBJECTS`; the manifest is not among them. With these,
manifest, presence and checks know the objects that are in the store, while sizes and positions of
the ledger stay those of the log segment (docs/reference/formats.md).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kip405.contracts import ExpectedSegment
from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid
from kip405.segments import (
    PLUGIN_METADATA_MAX_BYTES,
    Layout,
    LogSegmentData,
    SegmentLocator,
)
from rsm_plugins.layout.keys import ObjectKind, data_objects_of, layout_of, required_custom

CONTENTS_VERSION = 1
_HEAD = struct.Struct(">BB")
_CONTENT = struct.Struct(">QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectContent:
    """Size and checksum of one object as it is stored."""

    size_bytes: int
    crc32c: int


def encode_contents(contents: Sequence[ObjectContent], own: bytes = b"") -> bytes:
    """The plugin's bytes of a layout that is not `kafka`; `own` is what the plugin adds."""
    packed = (_CONTENT.pack(one.size_bytes, one.crc32c) for one in contents)
    data = b"".join((_HEAD.pack(CONTENTS_VERSION, len(contents)), *packed, own))
    if len(data) > PLUGIN_METADATA_MAX_BYTES:
        raise Invalid(f"plugin metadata has {len(data)} bytes, at most 64 allowed")
    return data


def stored_contents(
    locator: SegmentLocator, log_size_bytes: int
) -> dict[ObjectKind, ObjectContent]:
    """The objects of a finished copy, without the manifest, by its envelope.

    `log_size_bytes`: of the log segment, which the envelope does not have. Invalid where the
    envelope is missing, or its plugin's bytes do not say what was stored.
    """
    custom, kinds = required_custom(locator), data_objects_of(locator)
    if custom.layout is Layout.KAFKA:
        log = ObjectContent(size_bytes=log_size_bytes, crc32c=custom.log_crc32c)
        indexes = ObjectContent(size_bytes=custom.indexes_size_bytes, crc32c=custom.indexes_crc32c)
        return {ObjectKind.LOG: log, ObjectKind.INDEXES: indexes}
    found = _decode(custom.plugin, f"segment {locator.segment_id}")
    if len(found) != len(kinds):
        raise Invalid(
            f"segment {locator.segment_id}: {len(found)} objects are said to be stored, layout "
            f"{custom.layout} has {len(kinds)}"
        )
    return dict(zip(kinds, found, strict=True))


def check_given_indexes(data: LogSegmentData, name: str) -> None:
    """Corrupt unless the indexes object that is to be stored under a name has its checksum."""
    if crc32c(data.indexes) != data.indexes_crc32c:
        raise Corrupt(f"the indexes object given as {name} does not have its CRC-32C")


def given_contents(data: LogSegmentData) -> tuple[ObjectContent, ObjectContent]:
    """Log and indexes object as they were given to the copy."""
    return (
        ObjectContent(size_bytes=data.log.size_bytes, crc32c=data.log_crc32c),
        ObjectContent(size_bytes=len(data.indexes), crc32c=data.indexes_crc32c),
    )


def own_metadata(locator: SegmentLocator) -> bytes:
    """What the plugin added to the contents; empty before the copy answered. Invalid as
    `stored_contents`.
    """
    if locator.custom_metadata is None or not (plugin := required_custom(locator).plugin):
        return b""
    stored_contents(locator, 0)
    return plugin[contents_size(len(data_objects_of(locator))) :]


def contents_size(count: int) -> int:
    """Bytes of the contents of so many objects, without what the plugin adds."""
    return _HEAD.size + count * _CONTENT.size


def expected_sizes(expected: ExpectedSegment) -> dict[ObjectKind, int]:
    """The sizes that the segment's objects must have in the store, without the manifest."""
    if layout_of(expected.locator) is Layout.KAFKA:
        return {
            ObjectKind.LOG: expected.log_size_bytes,
            ObjectKind.INDEXES: expected.indexes_size_bytes,
        }
    contents = stored_contents(expected.locator, expected.log_size_bytes)
    return {kind: content.size_bytes for kind, content in contents.items()}


def _decode(plugin: bytes, where: str) -> tuple[ObjectContent, ...]:
    if len(plugin) < _HEAD.size:
        raise Invalid(f"{where}: the plugin did not say what it stored")
    version, count = _HEAD.unpack_from(plugin)
    if version != CONTENTS_VERSION:
        raise Invalid(f"{where}: version {version} of what was stored is not known")
    end = _HEAD.size + count * _CONTENT.size
    if end > len(plugin):
        raise Invalid(f"{where}: {len(plugin)} bytes cannot have the contents of {count} objects")
    return tuple(
        ObjectContent(size_bytes=size_bytes, crc32c=checksum)
        for size_bytes, checksum in _CONTENT.iter_unpack(plugin[_HEAD.size : end])
    )
