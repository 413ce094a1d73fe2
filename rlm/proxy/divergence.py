"""Decides whether the last fetched epoch of a client belongs to the log that it reads (KIP-595).

A trim cuts the broker's leader epochs, so the broker alone would call every remote position
diverging (H37). The merged lineage still has all epochs. The verdict is that of a leader without
tiering (Partition.readRecords, LeaderEpochFileCache.endOffsetFor). This module must not know where
lineages come from.
"""

import enum
from collections.abc import Callable

from kafka_protocol.fetch import FetchPartition
from kip405.ids import Uuid
from rlm.remote_log.tier import EpochEnd

EpochEnds = Callable[[Uuid, int, int], EpochEnd | None]
"""Where a leader epoch of a partition ended, None where only the broker can tell; see Tier."""


class EpochVerdict(enum.Enum):
    """What a leader answers about the epoch of the record before the fetch offset."""

    CONSISTENT = "consistent"  # or the client named no epoch
    DIVERGED = "diverged"  # the epoch ended before the offset, or has no records here
    UNKNOWN = "unknown"  # newer than any epoch of the leader: a broker answers OFFSET_OUT_OF_RANGE


def judge_epoch(
    asked: FetchPartition, leader_epoch: int, epoch_end: EpochEnd | None
) -> EpochVerdict:
    """Judge `last_fetched_epoch` by where it ended, None = it is the present one or newer."""
    fetched_epoch = asked.last_fetched_epoch
    if fetched_epoch < 0:
        return EpochVerdict.CONSISTENT
    if epoch_end is None:
        is_newer = fetched_epoch > leader_epoch
        return EpochVerdict.UNKNOWN if is_newer else EpochVerdict.CONSISTENT
    is_same_epoch = epoch_end.leader_epoch == fetched_epoch
    if is_same_epoch and asked.fetch_offset <= epoch_end.end_offset:
        return EpochVerdict.CONSISTENT
    return EpochVerdict.DIVERGED
