"""H3 as properties: compaction changes no state, repairs lead to what a model that rejects has,
readers agree.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.ids import Uuid
from kip405.segments import LAWFUL_SEGMENT_CHANGES, RemoteLogSegmentMetadata
from rlmm.records import LedgerRecord
from tests.rlmm.builders import DELETED, FINISHED
from tests.rlmm.histories import (
    Log,
    compact,
    fold,
    histories,
    lawful,
    partition,
    read,
    repaired,
    tombstones,
)


@given(log=histories, data=st.data())
def test_h03_replay_of_any_compaction_is_replay_of_the_log(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    kept = data.draw(st.frozensets(st.sampled_from(sorted(tombstones(log)) or [0])))
    assert fold(compact(log, cut, kept)) == fold(log)


@given(log=histories, data=st.data())
def test_h03_a_live_reader_has_the_state_of_replay(log: Log, data: st.DataObject) -> None:
    """Wherever he came in and whatever was compacted by then."""
    cut = data.draw(st.integers(0, len(log)))
    live_at = data.draw(st.integers(cut, len(log)))
    reader = read(compact(log, cut), live_at=live_at)
    assert dict(partition(reader).records) == dict(
        fold(log).get(log[0].key.partition, {}) if log else {}
    )


class RejectingModel:
    """What Kafka's RLMM would keep: illegal events are dropped, one after the other, with full
    knowledge.
    """

    def __init__(self) -> None:
        self.states: dict[Uuid, tuple[RemoteLogSegmentMetadata, int]] = {}
        self.newest_epoch = -1

    def offer(self, event: LedgerRecord) -> bool:
        assert event.key.segment_id is not None
        key = event.key.segment_id
        epoch = event.headers.leader_epoch
        is_legal = self._is_legal(event, self.states.get(key))
        self.newest_epoch = max(self.newest_epoch, epoch)
        if not is_legal:
            if key in self.states:
                self.states[key] = self.states[key][0], self.newest_epoch
        elif event.metadata is None:
            self.states.pop(key, None)
        else:
            self.states[key] = event.metadata, epoch
        return is_legal

    def _is_legal(
        self, event: LedgerRecord, before: tuple[RemoteLogSegmentMetadata, int] | None
    ) -> bool:
        state = before[0].state if before else None
        if event.headers.leader_epoch < self.newest_epoch:
            return False
        if event.headers.expected_previous != (-1 if state is None else state):
            return False
        if event.state is None:
            in_table = state in (DELETED, None)
        else:
            in_table = event.state in LAWFUL_SEGMENT_CHANGES[state]
        is_newer = before is not None and event.headers.leader_epoch > before[1]
        return in_table or event.state is FINISHED or is_newer


@given(log=histories)
def test_h03_histories_repaired_at_once_equal_a_model_that_rejects(log: Log) -> None:
    model = RejectingModel()
    written: Log = ()
    for event in log:
        offset = written[-1].offset + 1 if written else 0
        placed = LedgerRecord(
            key=event.key,
            metadata=event.metadata,
            headers=event.headers,
            offset=offset,
            timestamp_ms=0,
        )
        written = (*written, placed)
        reader = read(written)
        assert model.offer(placed) == (not partition(reader).disputes)
        written = repaired(reader, written)
    expected = {key: metadata for key, (metadata, _) in model.states.items()}
    assert lawful(read(written)) == expected
    assert not partition(read(written)).disputes


@given(log=histories, data=st.data())
def test_h03_after_the_republish_all_readers_agree(log: Log, data: st.DataObject) -> None:
    """The one who was always there repairs; those who came late, to a compacted log, follow."""
    leader = read(log)
    agreed = lawful(leader)
    settled = repaired(leader, log)
    cut = data.draw(st.integers(0, len(log)))
    live_at = data.draw(st.integers(cut, len(settled)))
    kept = tombstones(log) - _lawful_tombstones(log)
    for reader in (
        read(settled),
        read(compact(settled, len(settled), tombstones(settled))),
        read(compact(settled, cut, kept), live_at=live_at),
    ):
        assert lawful(reader) == agreed
        assert not partition(reader).disputes
    final = compact(settled, len(settled))
    assert lawful(read(final)) == agreed


@given(log=histories, data=st.data())
def test_h03_a_reader_that_knows_less_disputes_less(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    live_at = data.draw(st.integers(cut, len(log)))
    kept = tombstones(log) - _lawful_tombstones(log)
    late = read(compact(log, cut, kept), live_at=live_at)
    assert set(partition(late).disputes) <= set(partition(read(log)).disputes)


def _lawful_tombstones(log: Log) -> frozenset[int]:
    """Those nobody objects to: only they can grow so old that compaction drops them."""
    return frozenset(
        offset
        for offset in tombstones(log)
        if log[offset].key.segment_id not in partition(read(log[: offset + 1])).disputes
    )


def _accept_only_lawful(log: Log) -> dict[Uuid, RemoteLogSegmentMetadata]:
    """The planted bug: replay keeps what the state machine allows and takes any first state
    (Kafka's way).
    """
    states: dict[Uuid, RemoteLogSegmentMetadata] = {}
    for event in log:
        assert event.key.segment_id is not None
        before = states.get(event.key.segment_id)
        if event.metadata is None:
            states.pop(event.key.segment_id, None)
        elif before is None or event.metadata.state in LAWFUL_SEGMENT_CHANGES[before.state]:
            states[event.key.segment_id] = event.metadata
    return states


def test_h03_the_property_finds_a_replay_that_accepts_only_lawful_records() -> None:
    @given(log=histories, data=st.data())
    def compaction_is_invisible(log: Log, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, len(log)))
        assert _accept_only_lawful(compact(log, cut)) == _accept_only_lawful(log)

    with pytest.raises(AssertionError):
        compaction_is_invisible()
