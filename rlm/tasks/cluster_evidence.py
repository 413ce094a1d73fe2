"""What the brokers of the cluster answer before a trim: share groups and their own retention.

A share group skips what is trimmed without any error (H19). A broker whose own retention is not off
would delete what nobody has copied (G1). rlm.plans.trim decides what follows from the answers.
"""

from dataclasses import dataclass

from kip405.errors import RemoteStorageError
from kip405.ids import TopicIdPartition
from rlm.remote_log.ports import ClusterRetention, ShareGroups
from rlmm.settings_records import TopicRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswers:
    """`share_group_start` None = no share group reads the partition. `retention_bounded` and
    `retention_unknown` are texts as in rlm.plans.trim.TrimGuards.
    """

    share_group_start: int | None = None
    retention_bounded: str | None = None
    retention_unknown: str | None = None


class ClusterEvidence:
    """Asks all brokers. RemoteStorageError: the share groups could not be seen."""

    def __init__(self, share_groups: ShareGroups, retention: ClusterRetention) -> None:
        self._share_groups = share_groups
        self._retention = retention

    async def recent(self, partition: TopicIdPartition, record: TopicRecord) -> ClusterAnswers:
        """Answers that may be a few seconds old: enough for a plan. A topic that is not trimmed
        needs none about retention.
        """
        start = await self._share_groups.start_offset(partition.topic, partition.partition)
        if record.mode != "tier" or not record.trim:
            return ClusterAnswers(share_group_start=start)
        return await self._with_retention(partition, start)

    async def now(self, partition: TopicIdPartition) -> ClusterAnswers:
        """For the last check before a trim: share groups are asked now, which may take long."""
        starts = await self._share_groups.starts_now(partition.topic)
        return await self._with_retention(partition, starts.get(partition.partition))

    async def _with_retention(
        self, partition: TopicIdPartition, start: int | None
    ) -> ClusterAnswers:
        try:
            bounded = await self._retention.bounded(partition.topic)
        except RemoteStorageError as error:
            return ClusterAnswers(share_group_start=start, retention_unknown=str(error))
        return ClusterAnswers(share_group_start=start, retention_bounded=bounded)
