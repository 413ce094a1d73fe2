"""Ids, errors, states, segments: the values that everything else is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import (
    Busy,
    Corrupt,
    ErrorKind,
    Fenced,
    Internal,
    Invalid,
    NotFound,
    RemoteStorageError,
    Unavailable,
    error_of_kind,
    kind_of_status,
)
from kip405.ids import ZERO_UUID, PartitionKey, TopicIdPartition, Uuid
from kip405.segments import (
    LAWFUL_SEGMENT_CHANGES,
    ByteRange,
    CustomMetadata,
    Layout,
    RemoteLogSegmentState,
    is_lawful_change,
)
from tests.kip405.segment_builder import PARTITION, segment

TEXT = "jF8s79t9SrG_PNqlwv7bAA"


def test_uuid_is_kafkas_text_both_ways() -> None:
    assert Uuid.parse(TEXT).raw.hex() == "8c5f2cefdb7d4ab1bf3cdaa5c2fedb00"
    assert str(Uuid.parse(TEXT)) == TEXT
    assert str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@given(st.binary(min_size=16, max_size=16))
def test_uuid_round_trip(raw: bytes) -> None:
    assert Uuid.parse(str(Uuid(raw))).raw == raw


@pytest.mark.parametrize(
    "text",
    ["", TEXT[:-1], TEXT + "A", TEXT[:-1] + "B", TEXT[:-1] + "=", TEXT[:-1] + "é", TEXT[:-1] + " "],
)
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        Uuid.parse(text)


def test_partitions_are_checked_at_birth() -> None:
    assert PARTITION.key == PartitionKey(PARTITION.topic_id, 3)
    assert str(PARTITION) == "orders-3"
    with pytest.raises(ValueError, match="negative"):
        TopicIdPartition(topic_id=ZERO_UUID, topic="t", partition=-1)
    with pytest.raises(ValueError, match="empty"):
        TopicIdPartition(topic_id=ZERO_UUID, topic="", partition=0)
    with pytest.raises(ValueError, match="16 bytes"):
        Uuid(b"short")


KINDS: list[tuple[ErrorKind, type[RemoteStorageError], bool]] = [
    (ErrorKind.NOT_FOUND, NotFound, False),
    (ErrorKind.UNAVAILABLE, Unavailable, True),
    (ErrorKind.BUSY, Busy, True),
    (ErrorKind.INVALID, Invalid, False),
    (ErrorKind.CORRUPT, Corrupt, False),
    (ErrorKind.FENCED, Fenced, False),
    (ErrorKind.INTERNAL, Internal, False),
]


@pytest.mark.parametrize(("kind", "made", "retriable"), KINDS)
def test_a_kind_survives_the_way_through_grpc(
    kind: ErrorKind, made: type[RemoteStorageError], retriable: bool
) -> None:
    error = error_of_kind(kind_of_status(kind.value), "what")
    assert type(error) is made
    assert (error.kind, error.retriable, str(error)) == (kind, retriable, "what")


def test_every_kind_has_an_exception_and_foreign_codes_have_a_kind() -> None:
    assert {kind for kind, *_ in KINDS} == set(ErrorKind)
    assert kind_of_status("DEADLINE_EXCEEDED") is ErrorKind.UNAVAILABLE
    assert kind_of_status("ABORTED") is ErrorKind.FENCED
    assert kind_of_status("UNKNOWN") is ErrorKind.INTERNAL


def test_lawful_changes_are_kafkas_table() -> None:
    # Rows: before (None first); columns: the states 0 to 3.
    table = {None: "1000", 0: "1110", 1: "0110", 2: "0011", 3: "0001"}
    for before, row in table.items():
        state = None if before is None else RemoteLogSegmentState(before)
        found = "".join(str(int(is_lawful_change(state, after))) for after in RemoteLogSegmentState)
        assert found == row
    assert len(LAWFUL_SEGMENT_CHANGES) == len(table)


def test_a_segment_keeps_its_custom_metadata_through_states_unless_given() -> None:
    custom = CustomMetadata(store_id=ZERO_UUID, plugin=b"p").encode()
    finished = segment(5, 9, {0: 5}).in_state(
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        event_timestamp_ms=7,
        broker_id=2,
        custom_metadata=custom,
    )
    deleting = finished.in_state(
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED, event_timestamp_ms=8, broker_id=3
    )
    assert deleting.custom().plugin == b"p"
    assert (deleting.event_timestamp_ms, deleting.broker_id, deleting.next_offset) == (8, 3, 10)
    assert deleting.locator("c").custom_metadata == custom
    assert deleting.locator("c").start_offset == 5


def test_segments_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="no range"):
        segment(5, 4, {0: 5})
    with pytest.raises(ValueError, match="no leader epochs"):
        segment(5, 6, {})
    with pytest.raises(ValueError, match="no custom metadata"):
        segment(5, 6, {0: 5}).custom()
    with pytest.raises(ValueError, match="no range"):
        ByteRange(start=5, end=4)
    assert ByteRange(start=5, end=9).size_bytes == 4


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 32),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=64),
    st.sampled_from(Layout),
)
def test_custom_metadata_round_trip_fits_into_kafkas_limit(
    store: bytes, bits: int, number: int, plugin: bytes, layout: Layout
) -> None:
    made = CustomMetadata(
        store_id=Uuid(store),
        entropy_bits=bits,
        indexes_size_bytes=number,
        log_crc32c=number,
        indexes_crc32c=number,
        plugin=plugin,
        layout=layout,
    )
    assert len(made.encode()) <= 128
    assert CustomMetadata.decode(made.encode()) == made
    assert made.encode()[1] == layout


@pytest.mark.parametrize("layout", Layout)
def test_a_layout_is_the_text_of_settings(layout: Layout) -> None:
    assert Layout.parse(str(layout)) is layout
    assert f"{layout}" == layout.name.lower()


@pytest.mark.parametrize("text", ["", "KAFKA", "0", "pulsar"])
def test_another_text_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match="none of kafka, blocks"):
        Layout.parse(text)


@pytest.mark.parametrize(
    ("at", "value", "match"), [(0, 2, "version 2"), (1, 3, "layout 3"), (18, 33, "entropy bits 33")]
)
def test_custom_metadata_of_another_time_is_refused(at: int, value: int, match: str) -> None:
    data = bytearray(CustomMetadata(store_id=ZERO_UUID).encode())
    data[at] = value
    with pytest.raises(ValueError, match=match):
        CustomMetadata.decode(bytes(data))


def test_sizes_beyond_the_envelope_are_refused() -> None:
    with pytest.raises(ValueError, match="no uint32"):
        CustomMetadata(store_id=ZERO_UUID, indexes_size_bytes=2**32)


def test_plugin_metadata_beyond_its_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="65 bytes"):
        CustomMetadata(store_id=ZERO_UUID, plugin=bytes(65))
