"""What was stored of a segment: the codec, the sizes expected in the store, and presence."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.contracts import ExpectedSegment, Presence
from kip405.errors import Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import CustomMetadata, Layout, SegmentLocator
from rsm_plugins.layout.keys import ObjectKind, object_names
from rsm_plugins.layout.stored import (
    ObjectContent,
    encode_contents,
    expected_sizes,
    stored_contents,
)
from rsm_plugins.local.manager import presence_of

LOG_BYTES, INDEXES_BYTES = 1_000, 50
CONTENTS = st.builds(
    ObjectContent, size_bytes=st.integers(0, 2**64 - 1), crc32c=st.integers(0, 2**32 - 1)
)
STORED = (
    ObjectContent(size_bytes=1_200, crc32c=0xAABBCCDD),
    ObjectContent(size_bytes=70, crc32c=0x01020304),
)


def locator(layout: Layout, plugin: bytes) -> SegmentLocator:
    partition = TopicIdPartition(topic_id=Uuid(bytes(16)), topic="t", partition=0)
    custom = CustomMetadata(
        store_id=Uuid(bytes(16)),
        indexes_size_bytes=INDEXES_BYTES,
        log_crc32c=1,
        indexes_crc32c=2,
        plugin=plugin,
        layout=layout,
    )
    return SegmentLocator(
        cluster_id="c",
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(bytes(16))),
        start_offset=0,
        custom_metadata=custom.encode(),
    )


def expected(where: SegmentLocator) -> ExpectedSegment:
    return ExpectedSegment(
        locator=where, log_size_bytes=LOG_BYTES, indexes_size_bytes=INDEXES_BYTES
    )


def blocks() -> SegmentLocator:
    return locator(Layout.BLOCKS, encode_contents(STORED))


@given(st.tuples(CONTENTS, CONTENTS), st.binary(max_size=38))
def test_what_was_stored_comes_back(
    stored: tuple[ObjectContent, ObjectContent], own: bytes
) -> None:
    where = locator(Layout.BLOCKS, encode_contents(stored, own))
    kinds = (ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX)
    assert stored_contents(where, LOG_BYTES) == dict(zip(kinds, stored, strict=True))


def test_the_bytes_are_as_written() -> None:
    """The format is stored with every segment (docs/reference/formats.md)."""
    assert encode_contents(STORED, b"own") == (
        b"\x01\x02" + struct.pack(">QIQI", 1_200, 0xAABBCCDD, 70, 0x01020304) + b"own"
    )


def test_a_kafka_segment_has_what_was_given() -> None:
    assert stored_contents(locator(Layout.KAFKA, b"any bytes"), LOG_BYTES) == {
        ObjectKind.LOG: ObjectContent(size_bytes=LOG_BYTES, crc32c=1),
        ObjectKind.INDEXES: ObjectContent(size_bytes=INDEXES_BYTES, crc32c=2),
    }


def test_more_than_the_envelope_has_room_for_is_refused() -> None:
    with pytest.raises(Invalid, match="65 bytes"):
        encode_contents(STORED, bytes(39))


@pytest.mark.parametrize(
    ("plugin", "match"),
    [
        (b"", "did not say"),
        (b"\x01", "did not say"),
        (b"\x02" + encode_contents(STORED)[1:], "version 2"),
        (encode_contents(STORED)[:-1], "cannot have"),
        (encode_contents(STORED[:1]), "1 objects are said to be stored"),
        (encode_contents((*STORED, *STORED)), "4 objects are said to be stored"),
    ],
)
def test_a_plugin_that_does_not_say_what_it_stored_is_refused(plugin: bytes, match: str) -> None:
    where = locator(Layout.BLOCKS, plugin)
    with pytest.raises(Invalid, match=match):
        stored_contents(where, LOG_BYTES)
    with pytest.raises(Invalid, match=match):
        expected_sizes(expected(where))


def test_presence_goes_by_the_objects_that_were_stored() -> None:
    where = blocks()
    sizes: dict[ObjectKind, int | None] = {
        ObjectKind.MANIFEST: 400,
        ObjectKind.BLOCKS: 1_200,
        ObjectKind.BLOCKS_INDEX: 70,
    }
    assert presence_of(expected(where), sizes).presence is Presence.COMPLETE
    for kind, name in object_names(where).items():
        found = presence_of(expected(where), sizes | {kind: None})
        assert (found.presence, name in found.detail) == (Presence.MISSING, True)
    for kind, size in ((ObjectKind.BLOCKS, LOG_BYTES), (ObjectKind.BLOCKS_INDEX, INDEXES_BYTES)):
        found = presence_of(expected(where), sizes | {kind: size})
        assert (found.presence, object_names(where)[kind] in found.detail) == (
            Presence.DIFFERENT,
            True,
        )
