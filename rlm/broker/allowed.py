"""Asks a broker which operations it allows this service's principal, without performing any.

Kafka adds them to Metadata and DescribeCluster on request (KIP-430), with one bit an operation.
"""

from collections.abc import Mapping, Sequence

from kafka_protocol.apis import DESCRIBE_CLUSTER, METADATA
from kip405.addresses import Address
from rlm.broker.answers import error_of_code
from rlm.broker.connection import BrokerConnection

_TIMEOUT_MS = 10_000
_NOT_AUTHORIZED = 29
_NOT_TOLD = -(1 << 31)
_OPERATIONS = {
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
}

Operations = frozenset[str]


def operations_of(bits: int) -> Operations | None:
    """The operations of an answer's bit field (org.apache.kafka.common.acl.AclOperation's codes);
    None where the broker did not say.
    """
    if bits == _NOT_TOLD:
        return None
    return frozenset(name for code, name in _OPERATIONS.items() if bits >> code & 1)


class AllowedOperations:
    """Asks one broker over a connection of its own, opened at the first call; the owner closes
    it.
    """

    def __init__(self, address: Address, *, client_id: str) -> None:
        self._connection = BrokerConnection(address, client_id=f"{client_id}-allowed")

    async def on_cluster(self) -> Operations | None:
        """DescribeCluster v0; nothing without Describe. Unavailable: no answer."""
        body = {"include_cluster_authorized_operations": True}
        answer = await self._connection.call(DESCRIBE_CLUSTER, 0, body, timeout_ms=_TIMEOUT_MS)
        if answer["error_code"]:
            raise error_of_code(answer["error_code"], "describe cluster", needs=None)
        return operations_of(answer["cluster_authorized_operations"])

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, Operations | None]:
        """Metadata v12, by the names that exist; nothing at all without Describe."""
        if not topics:
            return {}
        body = {
            "topics": [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
        answer = await self._connection.call(METADATA, 12, body, timeout_ms=_TIMEOUT_MS)
        found: dict[str, Operations | None] = {}
        for topic in answer["topics"]:
            code = topic["error_code"]
            if code == _NOT_AUTHORIZED:
                found[topic["name"]] = frozenset()
            elif code == 0:
                found[topic["name"]] = operations_of(topic["topic_authorized_operations"])
        return found

    async def close(self) -> None:
        await self._connection.close()
