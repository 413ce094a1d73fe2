"""A process that begins with a snapshot knows what the one that wrote it would know (H3)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Corrupt
from kip405.ids import MAX_OFFSET, TopicIdPartition
from kip405.segments import (
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.ledger import PartitionLedger
from rlmm.packed import Names
from rlmm.records import LaterRecord, LedgerKey, LedgerRecord, PartitionDeleteRecord, RecordHeaders
from rlmm.replay import LedgerState, PartitionState
from rlmm.resuming import RecordMark, ResumePoint
from rlmm.segment_store import Segments, SegmentStore
from rlmm.snapshot import LedgerSection, decode_section, encode_section
from tests.rlmm.builders import FINISHED, KEY, STARTED, TOPIC_ID, record, uuid
from tests.rlmm.histories import compact, fold, histories

POINT = ResumePoint(
    log_start=2, position=77, leader_epoch=4, last=RecordMark(75, 1_700_000_000_000, 0xFFFF_FFFE)
)
Read = LedgerRecord | PartitionDeleteRecord | int
"""What a reader takes in; a number is the offset of a record that it could not read."""


def apply(state: LedgerState, read: Read) -> None:
    if isinstance(read, LedgerRecord):
        state.apply(read)
    elif isinstance(read, PartitionDeleteRecord):
        state.apply_deletion(read)
    else:
        state.skip(read)


def through_bytes(state: LedgerState) -> LedgerState:
    """What another process makes of it."""
    ledger = state.freeze()
    assert ledger is not None
    data = b"".join(encode_section(LedgerSection(partition=7, point=POINT, ledger=ledger)))
    section = decode_section(data)
    assert (section.partition, section.point) == (7, POINT)
    return LedgerState.of(section.ledger)


def answers(state: LedgerState) -> dict[str, Any]:
    """Everything that can be asked of a state."""
    return {
        "next": state.next_offset,
        "complete": state.is_complete,
        "partitions": {key: _of_partition(one) for key, one in state.partitions.items()},
    }


def _of_partition(state: PartitionState) -> dict[str, Any]:
    view = PartitionLedger.of(state.key, state)
    lineage = view.remote_lineage
    return {
        "records": dict(state.records),
        "disputes": dict(state.disputes),
        "hidden": set(state.all_disputes.hidden),
        "keys": state.keys,
        "epoch": (state.newest_epoch, state.version),
        "deletion": state.deletion,
        "entries": dict(view.entries),
        "in state": [view.in_state(one) for one in RemoteLogSegmentState],
        "totals": (view.finished_total, view.readable_end, view.is_empty, view.deletion_problem),
        "lineage": lineage,
        "usable": view.usable(lineage, MAX_OFFSET),
        "ends": (
            view.contiguous_end(lineage, MAX_OFFSET, 0),
            view.highest_end(lineage),
            view.highest_end(lineage, disputed=True),
            view.is_within(lineage),
        ),
        "lookups": [view.usable_segment_for(lineage, MAX_OFFSET, at) for at in range(0, 40, 3)],
    }


def deletion(offset: int, state: RemotePartitionDeleteState | None) -> PartitionDeleteRecord:
    metadata = None
    if state is not None:
        metadata = RemotePartitionDeleteMetadata(
            topic_id_partition=TopicIdPartition(topic_id=TOPIC_ID, topic="orders", partition=3),
            broker_id=1,
            event_timestamp_ms=5,
            state=state,
        )
    headers = RecordHeaders(leader_epoch=1, expected_previous=-1, writer=uuid(1_003))
    return PartitionDeleteRecord(partition=KEY, metadata=metadata, headers=headers, offset=offset)


@st.composite
def readings(draw: st.DrawFn) -> list[Read]:
    """A history whose beginning was compacted, as a reader gets it; times pass between records."""
    log = draw(histories)
    log = compact(log, draw(st.integers(0, len(log))))
    hours = draw(st.lists(st.integers(0, 30), min_size=len(log), max_size=len(log)))
    found: list[Read] = []
    now_ms = 0
    for one, passed in zip(log, hours, strict=True):
        now_ms += passed * 3_600_000
        kind = draw(st.sampled_from(["segment"] * 8 + ["unreadable", "deletion"]))
        if kind == "unreadable":
            found.append(one.offset)
        elif kind == "deletion":
            states = st.sampled_from([*RemotePartitionDeleteState, None])
            found.append(deletion(one.offset, draw(states)))
        else:
            found.append(
                LedgerRecord(
                    key=one.key,
                    metadata=one.metadata,
                    headers=one.headers,
                    offset=one.offset,
                    timestamp_ms=now_ms,
                )
            )
    return found


@given(read=readings(), data=st.data())
def test_h03_a_process_that_begins_with_a_snapshot_knows_all_that_the_former_did(
    read: Sequence[Read], data: st.DataObject
) -> None:
    live_at = data.draw(st.integers(0, len(read)), "live at")
    taken_at = data.draw(st.integers(live_at, len(read)), "snapshot at")
    former = LedgerState()
    for one in read[:live_at]:
        apply(former, one)
    former.go_live(absence_is_known=data.draw(st.booleans()))
    for one in read[live_at:taken_at]:
        apply(former, one)
    later = through_bytes(former)
    assert answers(later) == answers(former)
    for one in read[taken_at:]:
        apply(former, one)
        apply(later, one)
        assert answers(later) == answers(former)


@given(log=histories, data=st.data())
def test_h03_a_snapshot_and_the_rest_are_the_replay_of_all(
    log: Sequence[LedgerRecord], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    at = data.draw(st.integers(cut, len(log)))
    former = LedgerState()
    for one in compact(tuple(log), cut):
        if one.offset < at:
            former.apply(one)
    later = through_bytes(former)
    for one in log[at:]:
        later.apply(one)
    found = {key: dict(one.records) for key, one in later.partitions.items() if one.records}
    assert found == fold(log)


def test_a_snapshot_is_as_of_one_moment() -> None:
    state = LedgerState()
    state.apply(record(0, 1, STARTED))
    ledger = state.freeze()
    state.apply(record(1, 1, FINISHED, previous=int(STARTED)))
    state.apply(record(2, 2, STARTED))
    assert ledger is not None
    later = LedgerState.of(ledger)
    assert {key: one.state for key, one in later.partitions[KEY].records.items()} == {
        uuid(1): STARTED
    }
    later.apply(record(1, 3, STARTED))
    assert uuid(3) not in state.partitions[KEY].records


def test_many_segments_and_a_deletion_are_the_same_afterwards() -> None:
    state = LedgerState()
    numbers = [number * 7_919 % 1_000 for number in range(1_000)]
    for offset, number in enumerate(numbers):
        state.apply(record(offset, number, FINISHED))
    deleted = deletion(1_000, RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
    state.apply_deletion(deleted)
    later = through_bytes(state)
    assert answers(later) == answers(state)
    again = record(1_001, 500, STARTED, epoch=6, previous=int(FINISHED))
    for one in (state, later):
        one.apply(again)
    assert answers(later) == answers(state)


def test_a_record_of_a_later_version_is_left_to_whoever_understands_it() -> None:
    state = LedgerState()
    state.apply(record(0, 1, STARTED))
    key = LedgerKey(partition=KEY, segment_id=None).encode() + b"new"
    state.apply_later(LaterRecord(partition=KEY, key=key, kind="api key 9, version 0", offset=1))
    assert state.freeze() is None
    state.apply_later(LaterRecord(partition=KEY, key=key, kind=None, offset=2))
    assert state.freeze() is not None


def test_bytes_that_are_no_section_are_corrupt() -> None:
    """Behind checksums that do not notice, as those of a faulty writer."""
    state = LedgerState()
    state.apply(record(0, 1, FINISHED))
    state.apply(record(1, 2, FINISHED, epoch=3))
    ledger = state.freeze()
    assert ledger is not None
    data = b"".join(encode_section(LedgerSection(partition=7, point=POINT, ledger=ledger)))
    for size in range(len(data)):
        with pytest.raises(Corrupt, match="ledger snapshot"):
            decode_section(data[:size])
    with pytest.raises(Corrupt, match="the segments end at"):
        decode_section(data + b"x")


def test_a_tombstone_of_a_partition_that_is_not_there_is_corrupt() -> None:
    state = LedgerState()
    state.apply(record(3, 1, None, previous=int(FINISHED)))
    ledger = state.freeze()
    assert ledger is not None
    assert ledger.tombstones
    torn = replace(ledger, partitions=())
    data = b"".join(encode_section(LedgerSection(partition=7, point=POINT, ledger=torn)))
    with pytest.raises(Corrupt, match="a tombstone of"):
        decode_section(data)


def test_segments_in_order_become_chunks_that_are_searched() -> None:
    items = [bytes([high, low]) + b"i" * 14 + b"record" for high in range(3) for low in range(256)]
    segments = Segments.of(items)
    assert list(segments) == items
    assert segments.count == len(items)
    assert all(segments.get(item[:16]) == item for item in items)
    store = SegmentStore.of(segments)
    store.remove(items[0][:16])
    assert store.get(items[0][:16]) is None
    assert segments.get(items[0][:16]) == items[0]
    assert list(store.freeze()) == items[1:]
    assert list(Segments.of([])) == []


def test_names_keep_their_indexes() -> None:
    topics = [TopicIdPartition(topic_id=TOPIC_ID, topic="a", partition=n) for n in (4, 2)]
    names = Names.of(topics, [uuid(9), uuid(8)])
    assert [names.topic_index(one) for one in topics] == [0, 1]
    assert [names.writer_index(uuid(9)), names.writer_index(uuid(7))] == [0, 2]
