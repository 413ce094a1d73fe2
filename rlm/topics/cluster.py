"""Requests to other brokers' direct listeners: log starts of their partitions, and their groups.

Reads only. Requests that alter or delete go to our own broker alone (H5).
"""

from dataclasses import dataclass

from kip405.addresses import Address
from kip405.errors import Unavailable
from rlm.broker.answers import TopicDescription
from rlm.broker.connection import BrokerConnection
from rlm.broker.own_broker import OwnBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker at one address: typed calls, and the bare connection for other APIs."""

    address: Address
    calls: OwnBroker
    connection: BrokerConnection

    async def close(self) -> None:
        await self.calls.close()
        await self.connection.close()


class OtherBrokers:
    """Brokers of the cluster by node id, at the addresses that our own direct listener returns."""

    def __init__(self, own: OwnBroker, *, client_id: str) -> None:
        self._own = own
        self._client_id = client_id
        self._nodes: dict[int, Node] = {}

    async def all(self) -> dict[int, Node]:
        """Every broker that is alive now."""
        cluster = await self._own.describe_cluster()
        addresses = {
            node.node_id: Address(host=node.host, port=node.port) for node in cluster.nodes
        }
        for node_id in [
            one for one, node in self._nodes.items() if addresses.get(one) != node.address
        ]:
            await self._nodes.pop(node_id).close()
        for node_id, address in addresses.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = self._connect(address)
        return dict(self._nodes)

    async def of(self, node_id: int) -> Node:
        """One broker; Unavailable if it is not alive."""
        node = (await self.all()).get(node_id)
        if node is None:
            raise Unavailable(f"broker {node_id} is not alive")
        return node

    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        """ListOffsets from the partition's leader; Unavailable without one."""
        described = topic.partitions.get(partition)
        if described is None or described.leader < 0:
            raise Unavailable(f"partition {topic.name}-{partition} has no leader now")
        node = await self.of(described.leader)
        answer = await node.calls.list_offset(topic.name, partition, timestamp)
        return answer.offset

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()
        self._nodes.clear()

    def _connect(self, address: Address) -> Node:
        return Node(
            address=address,
            calls=OwnBroker(address, client_id=self._client_id),
            connection=BrokerConnection(address, client_id=f"{self._client_id}-groups"),
        )
