"""Builds what a replica needs to begin behind the remote tier, as Kafka's new followers do.

A follower whose log ends below the leader's local log start fetches no records that only the remote
tier has. It takes the leader epochs and the producer snapshot of the remote segment that holds the
offset before, and begins its log at that segment's end. Both are in the indexes object of the
segment, as they were when it was copied. Source: TierStateMachine.buildRemoteLogAuxState. This
module must not know gRPC.
"""

from dataclasses import dataclass

from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType
from kip405.errors import Corrupt, NotFound
from kip405.ids import Uuid
from kip405.indexes import IndexesObject
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.remote_state import RemotePartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogAuxState:
    """`next_offset`: where the replica's log begins. `lineage` ends below it, and
    `producer_snapshot` is that of Kafka's file of this name; None where the broker had none.
    """

    segment_id: Uuid
    remote_log_start_offset: int
    next_offset: int
    lineage: Lineage
    producer_snapshot: bytes | None


async def build_remote_log_aux_state(
    state: RemotePartitionState, objects: RemoteObjects, end_offset: int
) -> RemoteLogAuxState:
    """The state at the end of the segment that holds the last offset below `end_offset`.

    NotFound: no finished segment in the leader's history holds it, or the history leaves the
    segment before its end, where no snapshot is known. Corrupt: the stored epochs are not those of
    the history. Fenced: the partition is frozen. Unavailable: its state is not known.
    """
    state.refuse_unreadable()
    segment = _segment_with(state, end_offset - 1)
    pieces = objects.read_indexes(state.topic_id_partition.key, segment.segment_id.id)
    parsed = IndexesObject.parse(b"".join([piece async for piece in pieces]))
    snapshot = parsed.section(IndexType.PRODUCER_SNAPSHOT)
    return RemoteLogAuxState(
        segment_id=segment.segment_id.id,
        remote_log_start_offset=state.log_start_offset,
        next_offset=segment.next_offset,
        lineage=_lineage(parsed, segment, state),
        producer_snapshot=None if snapshot is None else bytes(snapshot),
    )


def _segment_with(state: RemotePartitionState, offset: int) -> RemoteLogSegmentMetadata:
    name = str(state.topic_id_partition)
    found = state.history.segment_at(offset) if offset >= state.log_start_offset else None
    if found is None or found.metadata.start_offset > offset:
        raise NotFound(
            f"{name}: no remote segment holds offset {offset}: "
            f"the remote tier has [{state.log_start_offset}, {state.next_offset})"
        )
    if found.next_offset < found.metadata.next_offset:
        raise NotFound(
            f"{name}: the leader's history leaves segment {found.metadata.segment_id} at offset "
            f"{found.next_offset}, where no producer snapshot was taken"
        )
    return found.metadata


def _lineage(
    parsed: IndexesObject, segment: RemoteLogSegmentMetadata, state: RemotePartitionState
) -> Lineage:
    section = parsed.section(IndexType.LEADER_EPOCH)
    if section is None:
        raise Corrupt(f"indexes of segment {segment.segment_id} have no LEADER_EPOCH section")
    stored = parse_leader_epochs(bytes(section))
    last = segment.next_offset - 1
    if stored.epoch_for_offset(last) != state.history.lineage.epoch_for_offset(last):
        raise Corrupt(
            f"indexes of segment {segment.segment_id}: offset {last} is of epoch "
            f"{stored.epoch_for_offset(last)} there, of "
            f"{state.history.lineage.epoch_for_offset(last)} in the leader's history"
        )
    return stored
