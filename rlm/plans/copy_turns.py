"""Whose copies come first: partitions that keep up before those with a backlog. Pure.

Within a partition segments are finished in order, so the newest one of a partition with a backlog
is its last. But a backlog of hours in some partitions must not keep the newest segments of others
waiting. So partitions with a backlog wait in a queue of their own, take turns of limited length
while others wait, and get at least every fourth turn, so that they advance however busy the others
are.
"""

_BACKLOG_SEGMENTS = 16
"""More closed segments to copy than this are a backlog: about as many as are copied at a time."""
_OTHERS_IN_A_ROW = 3
_TURN_MS = 10_000
"""Long enough that the snapshot at the start of a turn hardly counts."""


def is_backlog(pending_segments: int) -> bool:
    """Whether so many segments that may be copied now are a backlog."""
    return pending_segments > _BACKLOG_SEGMENTS


def is_turn_of_last(*, first_wait: bool, last_wait: bool, first_in_a_row: int) -> bool:
    """Whether the next task is one of those that come last, that is of a backlog.

    `first_in_a_row`: tasks of other partitions that were begun since the last one of a backlog.
    """
    return last_wait and (not first_wait or first_in_a_row >= _OTHERS_IN_A_ROW)


def gives_way(*, pending_segments: int, ran_ms: int, others_wait: bool) -> bool:
    """Whether a task of a partition begins no further segment, so that others get their turn."""
    return others_wait and ran_ms >= _TURN_MS and is_backlog(pending_segments)
