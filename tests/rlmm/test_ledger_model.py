"""Packed and shared views answer as a model does that keeps every record in a dictionary."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentState
from rlmm.ledger import Hole, PartitionLedger, SegmentTotal, entry_of
from rlmm.records import NO_PREVIOUS, LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import TOMBSTONE_MEMORY_MS, LedgerState, PartitionState
from tests.rlmm.builders import DELETED, FINISHED, KEY, STARTED, segment, uuid
from tests.rlmm.histories import Log, histories
from tests.rlmm.ledger_model import ModelState

LINEAGES = (
    Lineage((EpochEntry(epoch=0, start_offset=0),)),
    Lineage(
        (
            EpochEntry(epoch=0, start_offset=0),
            EpochEntry(epoch=1, start_offset=1_500),
            EpochEntry(epoch=3, start_offset=4_000),
        )
    ),
)


class Readers:
    """The ledger and the model, which read the same."""

    def __init__(self) -> None:
        self.ours, self.model = LedgerState(), ModelState()
        self.view = PartitionLedger.empty(KEY)

    def apply(self, record: LedgerRecord) -> None:
        self.ours.apply(record)
        self.model.apply(record)

    def skip(self, offset: int) -> None:
        self.ours.skip(offset)
        self.model.skip(offset)

    def go_live(self, *, absence_is_known: bool) -> None:
        self.ours.go_live(absence_is_known=absence_is_known)
        self.model.absence_is_known = absence_is_known

    @property
    def state(self) -> PartitionState:
        return self.ours.partitions.get(KEY, PartitionState(KEY))

    def next_view(self) -> PartitionLedger:
        self.view = PartitionLedger.of(KEY, self.state, self.view)
        return self.view


def check_state(readers: Readers) -> None:
    state, model = readers.state, readers.model
    assert dict(state.records) == model.records
    assert state.keys == model.keys.keys()
    assert {
        key: (one.newest, one.lawful, one.why) for key, one in state.disputes.items()
    } == model.disputes
    assert state.newest_epoch == model.newest_epoch
    for key, known in model.keys.items():
        ours = state.known(key.raw)
        assert ours is not None
        assert ours.certain == known.certain


def check_entries(view: PartitionLedger, model: ModelState) -> None:
    assert {key: (one.metadata, one.offset) for key, one in view.entries.items()} == {
        key: (one.metadata, one.offset) for key, one in model.records.items()
    }
    assert len(view.entries) == len(model.records)
    for key, entry in view.entries.items():
        assert entry == view.entries[key]
        assert entry.disputed == (model.disputes[key][2] if key in model.disputes else "")
    for state in RemoteLogSegmentState:
        found = view.in_state(state)
        starts = [(one.metadata.start_offset, one.offset) for one in found]
        assert starts == sorted(starts)
        assert {one.metadata.segment_id.id for one in found} == {
            key for key, one in model.records.items() if one.state is state
        }
    sizes = [one.metadata.segment_size_bytes for one in view.in_state(FINISHED)]
    assert view.finished_total == SegmentTotal(segments=len(sizes), size_bytes=sum(sizes))
    assert view.remote_lineage == model.remote_lineage
    assert view.readable_end == max((one.next_offset for one, _ in model.readable), default=0)


def check_queries(view: PartitionLedger, model: ModelState, draw: random.Random) -> None:
    offset, end = draw.randrange(7_000), draw.choice([MAX_OFFSET, draw.randrange(7_500)])
    ids = list(model.records)
    without = frozenset(draw.sample(ids, min(len(ids), draw.choice([0, 0, 1, 9]))))
    holes = [
        Hole(start=at, end=at + draw.randrange(1, 90), cause="x") for at in (offset, 40, 2_000)
    ]
    holes = draw.sample(holes, draw.randrange(3))
    for lineage in (*LINEAGES, model.remote_lineage):
        assert list(view.usable(lineage, end, offset)) == model.usable(lineage, end, offset)
        assert list(view.usable(lineage, end)) == model.usable(lineage, end)
        for start in (0, offset):
            assert view.contiguous_end(
                lineage, end, start, holes, without=without
            ) == model.contiguous_end(lineage, end, start, holes, without)
        for disputed in (True, False):
            assert view.highest_end(lineage, end, disputed=disputed) == model.highest_end(
                lineage, end, disputed
            )
        found = view.usable_segment_for(lineage, end, offset)
        assert found == model.lookup(lineage, end, offset)


def history(draw: random.Random, records: int, segments: int) -> Iterator[LedgerRecord]:
    """Mostly what writers do, some of it what zombies do; half as many segments as numbers."""
    newest: dict[int, int] = {}
    offset, now_ms, epoch = 0, 0, 0
    for _ in range(records):
        number = draw.randrange(segments)
        before = newest.get(number, NO_PREVIOUS)
        state = draw.choice([FINISHED, FINISHED, STARTED, before + 1, before + 1])
        if state > DELETED:
            state = NO_PREVIOUS
        epoch += draw.random() < 0.004
        start = number * 10 - draw.choice([0, 0, 0, 5, 300]) * (number > 40)
        epochs = (
            ((draw.randrange(2), start),) if draw.random() < 0.9 else ((0, start), (2, start + 4))
        )
        made = segment(
            number,
            STARTED if state == NO_PREVIOUS else RemoteLogSegmentState(state),
            start=start,
            end=start + draw.choice([9, 9, 9, 4, 600]),
            epochs=epochs,
        )
        yield LedgerRecord(
            key=LedgerKey.of(made.segment_id),
            metadata=None if state == NO_PREVIOUS else made,
            headers=RecordHeaders(
                leader_epoch=max(epoch - (draw.random() < 0.03), 0),
                expected_previous=before if draw.random() < 0.97 else draw.randrange(-1, 4),
                writer=uuid(1_000 + draw.randrange(3)),
            ),
            offset=offset,
            timestamp_ms=now_ms,
        )
        newest[number] = state
        offset += 1 if draw.random() < 0.999 else 3
        now_ms += draw.choice([1, 1_000, TOMBSTONE_MEMORY_MS // 50])


@pytest.mark.parametrize("seed", range(3))
def test_h03_long_histories_of_many_chunks_answer_as_the_model(seed: int) -> None:
    """Views are made after some records only, so covers are inherited over several versions."""
    draw, readers = random.Random(seed), Readers()
    held: list[tuple[PartitionLedger, dict[object, object]]] = []
    for record in history(draw, 2_000, 650):
        readers.apply(record)
        if record.offset == 900:
            readers.go_live(absence_is_known=seed % 2 == 0)
        if draw.random() < 0.012:
            view = readers.next_view()
            check_queries(view, readers.model, draw)
            held.append((view, {key: one.offset for key, one in readers.model.records.items()}))
        if draw.random() < 0.003:
            check_state(readers)
            check_entries(readers.next_view(), readers.model)
    for view, offsets in held:
        assert {key: one.offset for key, one in view.entries.items()} == offsets


@given(log=histories, seed=st.integers(0, 1_000), data=st.data())
def test_h03_any_history_answers_as_the_model(log: Log, seed: int, data: st.DataObject) -> None:
    readers, draw = Readers(), random.Random(seed)
    lost = data.draw(st.frozensets(st.integers(0, max(len(log) - 1, 0)), max_size=2))
    live_at = data.draw(st.integers(0, len(log)))
    for record in log:
        if record.offset == live_at:
            readers.go_live(absence_is_known=True)
        if record.offset in lost:
            readers.skip(record.offset)
            continue
        readers.apply(record)
        if record.offset % 3 == 0:
            check_queries(readers.next_view(), readers.model, draw)
    check_state(readers)
    check_entries(readers.next_view(), readers.model)
    for key in readers.model.keys:
        assert entry_of(readers.state, key) == readers.next_view().entries.get(key)
