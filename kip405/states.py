"""States of a remote log segment and which change of state is lawful.

        COPY_SEGMENT_STARTED -----> COPY_SEGMENT_FINISHED
                 |                           |
                 v                           v
        DELETE_SEGMENT_STARTED <-------------+
                 |
                 v
        DELETE_SEGMENT_FINISHED ---> (tombstone)

A state may follow itself: retries and fail-overs repeat. Legality never decides what the state *is*
(the newest record does, H3); it decides what the partition's leader repairs. Source:
org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState.isValidTransition.
"""

import enum


class RemoteLogSegmentState(enum.IntEnum):
    """The ids are Kafka's and go to disk."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(enum.IntEnum):
    """States of the deletion of a whole partition; the ids are Kafka's."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

LAWFUL_SEGMENT_CHANGES: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_STARTED}),
    _STARTED: frozenset({_STARTED, _FINISHED, _DELETING}),
    _FINISHED: frozenset({_FINISHED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
    _DELETED: frozenset({_DELETED}),
}


def is_lawful_change(before: RemoteLogSegmentState | None, after: RemoteLogSegmentState) -> bool:
    """Whether Kafka's state machine allows `after` to follow `before` (None = no record yet)."""
    return after in LAWFUL_SEGMENT_CHANGES[before]
