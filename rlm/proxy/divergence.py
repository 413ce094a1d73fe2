"""Whether a client's last fetched epoch belongs to the history it goes on reading (KIP-595).

Why: a trim cuts the broker's leader epochs, so the broker alone would call every remote position
diverging (H37). The merged lineage still has them all; the verdict is the one a leader without
tiering gives (Partition.readRecords, LeaderEpochFileCache.endOffsetFor). It must not know where
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
    """What a leader says of the epoch of the record before the offset asked for."""

    CONSISTENT = "consistent"  # or the client named no epoch
    DIVERGED = "diverged"  # the epoch ended before the offset, or has no records here
    UNKNOWN = "unknown"  # newer than any epoch of the leader: OFFSET_OUT_OF_RANGE at a broker


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
