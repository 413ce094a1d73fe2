"""Ledger keys, headers and values: round trips, every cut, foreign and future bytes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    Layout,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.ledger_values import (
    decode_partition_delete,
    decode_value,
    encode_partition_delete,
    encode_value,
)
from rlmm.records import (
    FORMAT_VERSION,
    LAYOUT_VERSION,
    LedgerKey,
    LedgerRecord,
    RecordHeaders,
    decode_record,
    record_version,
)
from tests.rlmm.builders import KEY, PARTITION, STARTED, segment, uuid

int64 = st.integers(0, 2**63 - 1)
int32 = st.integers(0, 2**31 - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)


@st.composite
def metadata(draw: st.DrawFn) -> RemoteLogSegmentMetadata:
    start, end = sorted((draw(int64), draw(int64)))
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=TopicIdPartition(
                topic_id=draw(uuids),
                topic=draw(st.text(min_size=1, max_size=249)),
                partition=draw(int32),
            ),
            id=draw(uuids),
        ),
        start_offset=start,
        end_offset=end,
        broker_id=draw(st.integers(-(2**31), 2**31 - 1)),
        max_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
        event_timestamp_ms=draw(int64),
        segment_leader_epochs=tuple(
            EpochEntry(epoch=epoch, start_offset=offset)
            for epoch, offset in draw(st.lists(st.tuples(int32, int64), min_size=1, max_size=200))
        ),
        segment_size_bytes=draw(int32),
        custom_metadata=draw(st.none() | st.binary(max_size=128)),
        state=draw(st.sampled_from(RemoteLogSegmentState)),
        txn_index_empty=draw(st.booleans()),
    )


@given(value=metadata())
def test_a_value_survives_the_round_trip(value: RemoteLogSegmentMetadata) -> None:
    assert decode_value(encode_value(value)) == value


def test_every_cut_of_a_value_is_corrupt() -> None:
    whole = encode_value(segment(1))
    for size in range(len(whole)):
        with pytest.raises(Corrupt):
            decode_value(whole[:size])
    with pytest.raises(Corrupt, match="1 bytes are left over"):
        decode_value(whole + b"\x00")


@given(data=st.binary(max_size=300))
def test_any_bytes_decode_or_are_corrupt(data: bytes) -> None:
    for value in (data, b"\x01\x00\x00" + data):
        try:
            decode_value(value)
        except Corrupt:
            continue


def test_tagged_fields_of_the_future_are_read_over() -> None:
    plain = encode_value(segment(1))
    assert plain[-1:] == b"\x00"
    assert decode_value(plain[:-1] + b"\x01\x07\x03abc") == segment(1)
    flagged = decode_value(plain[:-1] + b"\x02\x00\x01\x01\x07\x03abc")
    assert flagged.txn_index_empty


@pytest.mark.parametrize(
    "frame", [b"\x00\x00\x00", b"\x01\x01\x00", b"\x01\x02\x00", b"\x01\x00\x01"]
)
def test_other_frames_kinds_and_versions_are_corrupt(frame: bytes) -> None:
    with pytest.raises(Corrupt, match="only"):
        decode_value(frame + encode_value(segment(1))[3:])


def test_partition_delete_records_of_other_versions() -> None:
    """Fields of a later version are read over; a state that is not known is no state at all."""
    deletion = RemotePartitionDeleteMetadata(
        topic_id_partition=PARTITION,
        event_timestamp_ms=77,
        broker_id=2,
        state=RemotePartitionDeleteState.DELETE_PARTITION_STARTED,
    )
    whole = encode_partition_delete(deletion)
    assert decode_partition_delete(whole) == deletion
    assert decode_partition_delete(whole[:-1] + b"\x01\x07\x03abc") == deletion
    for damaged in (
        whole[:-2] + b"\x03\x00",
        *(whole[:size] for size in range(len(whole))),
        whole + b"\x00",
        b"\x01\x00\x00" + whole[3:],
        b"\x01\x02\x01" + whole[3:],
    ):
        with pytest.raises(Corrupt):
            decode_partition_delete(damaged)


def test_a_length_beyond_the_value_allocates_nothing() -> None:
    whole = encode_value(segment(1))
    huge = b"\xff\xff\xff\xff\x0f"
    at = len(b"\x01\x00\x00") + 1 + len(PARTITION.topic) + 16 + 4 + 1 + 16 + 1 + 36
    with pytest.raises(Corrupt, match="leader epochs cannot be"):
        decode_value(whole[:at] + huge + whole[at + 1 :])


@given(topic=uuids, partition=int32, identity=st.none() | uuids)
def test_a_key_survives_the_round_trip(topic: Uuid, partition: int, identity: Uuid | None) -> None:
    key = LedgerKey(partition=PartitionKey(topic, partition), segment_id=identity)
    assert LedgerKey.decode(key.encode()) == key
    assert len(key.encode()) == (20 if identity is None else 36)


@pytest.mark.parametrize("size", [0, 19, 21, 35, 37])
def test_a_key_of_another_size_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt, match=str(size)):
        LedgerKey.decode(bytes(size))


def test_headers_survive_and_foreign_ones_are_left_alone() -> None:
    headers = RecordHeaders(leader_epoch=7, expected_previous=-1, writer=uuid(4))
    assert RecordHeaders.decode([("other", b"x"), *headers.encode()]) == headers


@pytest.mark.parametrize("name", ["rlm.v", "rlm.epoch", "rlm.prev", "rlm.writer"])
@pytest.mark.parametrize("value", [None, b"", b"\x7f", bytes(17)])
def test_a_missing_or_malformed_header_is_corrupt(name: str, value: bytes | None) -> None:
    good = dict(RecordHeaders(leader_epoch=7, expected_previous=0, writer=uuid(4)).encode())
    headers = [(key, found) for key, found in good.items() if key != name]
    if value is not None:
        headers.append((name, value))
    with pytest.raises(Corrupt):
        RecordHeaders.decode(headers)


def _decode(key: bytes | None, value: bytes | None, version: bytes = b"\x01") -> object:
    headers = dict(RecordHeaders(leader_epoch=7, expected_previous=0, writer=uuid(4)).encode())
    headers["rlm.v"] = version
    return decode_record(
        key=key, value=value, headers=list(headers.items()), offset=1, timestamp_ms=2
    )


def test_a_record_of_the_future_or_under_a_foreign_key_is_corrupt() -> None:
    key = LedgerKey.of(segment(1).segment_id).encode()
    value = encode_value(segment(1, STARTED))
    assert _decode(key, value) is not None
    assert _decode(key, None) is not None
    foreign = LedgerKey.of(segment(2).segment_id).encode()
    whole_partition = LedgerKey(partition=KEY, segment_id=None).encode()
    with pytest.raises(Corrupt, match=r"rlm.v=3"):
        _decode(key, value, b"\x03")
    for broken_key, broken_value in (
        (None, value),
        (foreign, value),
        (whole_partition, value),
        (key, b""),
        (key, b"\x01\x07"),
        (key, b"\x02\x07\x00"),
        (key[:19], b"\x01\x07\x00"),
        (key[:19], None),
    ):
        with pytest.raises(Corrupt):
            _decode(broken_key, broken_value)


@pytest.mark.parametrize("layout", Layout)
def test_h06_a_record_of_another_layout_is_of_a_later_version(layout: Layout) -> None:
    """So that an older version of the software does not start beside one."""
    custom = CustomMetadata(store_id=uuid(9), layout=layout).encode()
    made = replace(segment(1, STARTED), custom_metadata=custom)
    version = record_version(made)
    assert version == (FORMAT_VERSION if layout is Layout.KAFKA else LAYOUT_VERSION)
    key = LedgerKey.of(made.segment_id).encode()
    record = _decode(key, encode_value(made), bytes((version,)))
    assert isinstance(record, LedgerRecord) and record.metadata == made


def test_a_record_without_a_layout_is_of_the_first_version() -> None:
    for custom in (None, b"", b"\x01"):
        made = replace(segment(1, STARTED), custom_metadata=custom)
        assert record_version(made) == FORMAT_VERSION
    assert record_version(None) == FORMAT_VERSION
