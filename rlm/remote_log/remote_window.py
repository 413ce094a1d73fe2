"""Lists the segments that a client of the remote tier may read from the store itself.

The list goes as far as the answer is certain: from the offset asked for up to the first offset that
no segment holds, or that an attached reader doubts. What is there, a hole, the end or an unsettled
copy, only a read through the service decides (rlm.remote_log.remote_only). Pure.
"""

from dataclasses import dataclass, replace
from typing import Final

from kip405.lineage import Lineage
from rlm.remote_log.reads import below_log_start
from rlm.remote_log.remote_state import RemotePartitionState
from rlmm.ledger import UsableSegment

WINDOW_SEGMENTS: Final = 64
MOST_WINDOW_SEGMENTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWindow:
    """`segments` with the end of what their copying leader shares with the lineage (None = all),
    each beginning at or below the offset where the one before it ends.
    """

    remote_log_start_offset: int
    lineage: Lineage
    segments: tuple[tuple[UsableSegment, int | None], ...]


def remote_window(
    state: RemotePartitionState, start_offset: int, most_segments: int
) -> RemoteWindow:
    """The segments from an offset on. OffsetOutOfRange: it is below the remote log start. Fenced:
    the partition is frozen, or the offset doubtful. Unavailable as `refuse_unreadable`.
    """
    state.refuse_unreadable()
    if start_offset < state.log_start_offset:
        raise below_log_start(state.topic_id_partition, start_offset, state.log_start_offset)
    certain_end = state.certain_end(start_offset)
    found: list[tuple[UsableSegment, int | None]] = []
    offset, history = start_offset, state.history
    while offset < certain_end and len(found) < most_segments:
        usable = history.segment_at(offset)
        if usable is None or usable.metadata.start_offset > offset:
            break
        shared_end = history.shared_end(usable)
        if usable.next_offset > certain_end:
            usable = replace(usable, next_offset=certain_end)
        found.append((usable, shared_end))
        offset = usable.next_offset
    return RemoteWindow(
        remote_log_start_offset=state.log_start_offset,
        lineage=history.lineage,
        segments=tuple(found),
    )
