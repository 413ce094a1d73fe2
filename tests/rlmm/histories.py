"""Histories of a ledger partition, what compaction makes of them, what readers see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.records import LedgerRecord, RecordHeaders
from rlmm.replay import LedgerState, PartitionState, repairs
from tests.rlmm.builders import DELETED, KEY, record, uuid

SEGMENTS = 3
EPOCHS = 4
LEADER = 9

State = RemoteLogSegmentState | None
Log = tuple[LedgerRecord, ...]


@dataclass(frozen=True)
class _Step:
    """A writer refreshes his view, is elected, or publishes a change on the view he has."""

    writer: int
    action: str
    segment: int
    state: State


states: st.SearchStrategy[State] = st.sampled_from([*RemoteLogSegmentState, None])
_steps = st.builds(
    _Step,
    writer=st.integers(0, 2),
    action=st.sampled_from(["publish", "publish", "publish", "refresh", "elect"]),
    segment=st.integers(0, SEGMENTS - 1),
    state=states,
)


def _play(steps: Sequence[_Step]) -> Log:
    """Writers act on views and epochs as old as they happen to be: zombies are the rule here."""
    log: list[LedgerRecord] = []
    views: dict[int, dict[int, int]] = {writer: {} for writer in range(3)}
    epochs = dict.fromkeys(range(3), 0)
    for step in steps:
        if step.action == "elect":
            epochs[step.writer] = max(epochs.values()) + 1
        if step.action != "publish":
            views[step.writer] = _newest_states(log)
            continue
        previous = views[step.writer].get(step.segment, -1)
        written = record(
            len(log),
            step.segment,
            step.state,
            epoch=epochs[step.writer],
            previous=previous,
            writer=step.writer,
        )
        log.append(written)
        views[step.writer][step.segment] = written.state_id
    return tuple(log)


def _newest_states(log: Sequence[LedgerRecord]) -> dict[int, int]:
    return {_number(written): written.state_id for written in log}


def _number(written: LedgerRecord) -> int:
    assert written.key.segment_id is not None
    return int.from_bytes(written.key.segment_id.raw, "big")


@st.composite
def _any_records(draw: st.DrawFn) -> Log:
    """Records without rhyme or reason: any state, epoch and expectation."""
    events = draw(
        st.lists(
            st.tuples(
                st.integers(0, SEGMENTS - 1),
                states,
                st.integers(0, EPOCHS - 1),
                st.integers(-1, DELETED),
            ),
            max_size=24,
        )
    )
    return tuple(
        record(offset, number, state, epoch=epoch, previous=previous)
        for offset, (number, state, epoch, previous) in enumerate(events)
    )


histories: st.SearchStrategy[Log] = st.one_of(
    _any_records(), st.lists(_steps, max_size=40).map(_play)
)


def compact(log: Log, cut: int, kept_tombstones: frozenset[int] = frozenset()) -> Log:
    """Kafka's cleaner up to `cut`: of each key only the newest record below it, tombstones kept
    by offset only.
    """
    newest = {written.key: written.offset for written in log if written.offset < cut}
    return tuple(
        written
        for written in log
        if written.offset >= cut
        or (
            newest[written.key] == written.offset
            and (written.metadata is not None or written.offset in kept_tombstones)
        )
    )


def tombstones(log: Log) -> frozenset[int]:
    return frozenset(written.offset for written in log if written.metadata is None)


def read(log: Log, *, live_at: int | None = None) -> LedgerState:
    """A reader of the whole log; `live_at`: offset at which his initial replay ends."""
    state = LedgerState()
    is_live = False
    for written in log:
        if live_at is not None and written.offset >= live_at and not is_live:
            state.go_live(absence_is_known=True)
            is_live = True
        state.apply(written)
    if live_at is not None and not is_live:
        state.go_live(absence_is_known=True)
    return state


def partition(state: LedgerState) -> PartitionState:
    return state.partitions.get(KEY, PartitionState(KEY))


def lawful(state: LedgerState) -> dict[Uuid, RemoteLogSegmentMetadata]:
    """What stands when every dispute is settled."""
    known = partition(state)
    present = {key: found.metadata for key, found in known.records.items() if found.metadata}
    for key, dispute in known.disputes.items():
        present.pop(key, None)
        if dispute.lawful is not None and dispute.lawful.metadata is not None:
            present[key] = dispute.lawful.metadata
    return present


def repaired(state: LedgerState, log: Log) -> Log:
    """The log after the leader's republish of all that `state` disputes."""
    known = partition(state)
    written = [*log]
    for repair in repairs(known.disputes):
        headers = RecordHeaders(
            leader_epoch=max(known.newest_epoch, 0),
            expected_previous=repair.expected_previous,
            writer=uuid(LEADER),
        )
        written.append(
            LedgerRecord(
                key=repair.key,
                metadata=repair.metadata,
                headers=headers,
                offset=len(written) if not written else written[-1].offset + 1,
                timestamp_ms=0,
            )
        )
    return tuple(written)


def fold(records: Iterable[LedgerRecord]) -> dict[PartitionKey, Mapping[Uuid, LedgerRecord]]:
    """replay(log) of one ledger partition: the state of every segment that has one."""
    state = LedgerState()
    for one in records:
        state.apply(one)
    folded = {key: partition.records for key, partition in state.partitions.items()}
    return {key: found for key, found in folded.items() if found}
