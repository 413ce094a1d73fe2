"""rlm.v1.FetchService of an attached reader: the remote tier of a cluster that may be gone.

There is no leader that could know more than the manifests, so this reader itself describes the
remote logs, where nothing about them is doubtful.
"""

from kip405.errors import Elsewhere
from kip405.ids import MAX_OFFSET
from rlm.api.calls import Answering
from rlm.api.remote_fetch import RemoteFetchService
from rlm.api.remote_log_messages import remote_log_message
from rlm.remote_log.objects import RemoteLogDescription
from rlm.remote_log.remote_state import RemotePartitionState
from rlm.v1 import fetch_pb2 as pb
from rsm_plugins.contract.answering import Context


class AttachedFetchService(RemoteFetchService):
    """As a reader's, but for what a reader asks a leader for."""

    async def _leaders_remote_log(self, request: pb.DescribeRemoteLogRequest) -> pb.RemoteLog:
        state = await self._certain(request.topic, request.partition)
        start = state.log_start_offset
        described = RemoteLogDescription(
            cluster_id=self._remote.objects.cluster_id,
            remote_log_start_offset=start,
            lineage=state.history.lineage,
            segments=state.history.usable(start),
        )
        partition = state.topic_id_partition
        return remote_log_message(partition.topic, partition.key, described)

    async def BuildRemoteLogAuxState(
        self, request: pb.BuildRemoteLogAuxStateRequest, context: Context
    ) -> pb.RemoteLogAuxState:
        async with Answering(self._remote.gate, context, "build aux state"):
            raise self._elsewhere("a replica of the same cluster is")

    async def _certain(self, ref: pb.TopicRef, number: int) -> RemotePartitionState:
        """Fenced where anything of the partition is doubtful: a copy of it would be, too."""
        state = await self._remote.view.partition(ref, number)
        state.refuse_unreadable()
        state.refuse_doubtful(MAX_OFFSET)
        return state

    def _elsewhere(self, what: str) -> Elsewhere:
        return Elsewhere(
            f"this is an attached reader, which has the store of a cluster alone, and {what} "
            "needed: ask with tiers = REMOTE_ONLY (rlm fetch --remote-only; Spark: readMode "
            "remote_only)"
        )
