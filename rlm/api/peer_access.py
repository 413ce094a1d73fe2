"""Asks the services of other brokers which ACLs they lack (H40): rlm.topics.access over gRPC."""

from collections.abc import Callable

from kip405.acls import Acl
from kip405.errors import Unavailable
from rlm.api.messages import acl_of
from rlm.api.peers import Peers
from rlm.v1 import admin_pb2 as pb


class PeerServicesAccess:
    """Implements rlm.topics.access.PeerAccess. `peers`: None until the API listens."""

    def __init__(self, peers: Callable[[], Peers | None]) -> None:
        self._peers = peers

    async def missing(self, node_id: int, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        peers = self._peers()
        address = peers.address_of(node_id) if peers is not None else ""
        if peers is None or not address:
            raise Unavailable("it has never said that it lives")
        request = pb.ProveAccessRequest(topic=topic, tier=tier)
        answer = await peers.ask(
            address,
            lambda stubs, sent, timeout: stubs.admin.ProveAccess(
                request, metadata=sent, timeout=timeout
            ),
        )
        return tuple(acl_of(one) for one in answer.missing)
