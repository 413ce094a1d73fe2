"""Copy limits of the whole cluster: those that were decided, and what each service goes by.

A service that does not answer is a row with the reason, and so is a node of which there is nothing
but a decision: what it goes by is unknown, not what was decided (H38).
"""

from rlm.api.fan_out import answers_of_others
from rlm.api.peers import Peers
from rlm.topics.copy_limits import CopyLimitDecisions
from rlm.v1 import admin_pb2 as pb
from rlmm.settings_records import CopyLimitRecord


class ClusterCopyLimits:
    """Owns nothing."""

    def __init__(self, *, peers: Peers, decisions: CopyLimitDecisions) -> None:
        self._peers = peers
        self._decisions = decisions

    async def own(self) -> pb.ListCopyLimitsResponse:
        """What this service alone goes by, with all decisions made before the call; Unavailable
        where they cannot be read.
        """
        await self._decisions.refresh()
        return self._own()

    async def whole(self, principal: str) -> pb.ListCopyLimitsResponse:
        """The same of every service, by node id."""
        await self._decisions.refresh()
        return await self._whole(principal)

    async def _whole(self, principal: str) -> pb.ListCopyLimitsResponse:
        found = self._own()
        request = pb.ListCopyLimitsRequest(local_only=True)
        answers, problems = await answers_of_others(
            self._peers, lambda stubs: stubs.admin.ListCopyLimits, request, principal
        )
        rows = [row for answer in (found, *answers) for row in answer.nodes]
        rows += [pb.NodeCopyLimit(node_id=at, problem=why) for at, why in problems.items()]
        known = {row.node_id for row in rows}
        rows += [
            pb.NodeCopyLimit(node_id=one.node_id, problem="no service of this node is known")
            for one in found.decided
            if one.HasField("node_id") and one.node_id not in known
        ]
        rows.sort(key=lambda row: row.node_id)
        return pb.ListCopyLimitsResponse(decided=found.decided, nodes=rows)

    async def change(
        self, request: pb.SetCopyLimitRequest, principal: str
    ) -> pb.ListCopyLimitsResponse:
        """Make or remove one decision; returns what `whole` does then."""
        node_id = request.node_id if request.HasField("node_id") else None
        if request.HasField("bytes_per_second"):
            await self._decisions.decide(node_id, request.bytes_per_second, by=principal)
        else:
            await self._decisions.remove(node_id)
        return await self._whole(principal)

    def _own(self) -> pb.ListCopyLimitsResponse:
        return pb.ListCopyLimitsResponse(
            decided=map(_message, self._decisions.listed()), nodes=[self._own_row()]
        )

    def _own_row(self) -> pb.NodeCopyLimit:
        overruling = self._decisions.overruling()
        return pb.NodeCopyLimit(
            node_id=self._peers.node_id,
            configured_bytes_per_second=self._decisions.configured,
            bytes_per_second=self._decisions.in_effect(),
            overruled=None if overruling is None else _message(overruling),
        )


def _message(record: CopyLimitRecord) -> pb.CopyLimit:
    return pb.CopyLimit(
        node_id=record.node_id,
        bytes_per_second=record.bytes_per_second,
        by=record.by,
        decided_ms=record.decided_ms,
    )
