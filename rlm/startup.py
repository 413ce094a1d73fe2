"""What must be true before a service works for a broker (H13, H21, H23); a refusal is one line."""

from collections.abc import Mapping

from kip405.errors import Invalid
from rlm.broker.own_broker import OwnBroker
from rlm.config import ServiceConfig
from rlm.log_dir.identity import BrokerIdentity, check_identity

_NO_AUTHORIZER = ("", None)


def check_disks(config: ServiceConfig, disks: BrokerIdentity) -> None:
    """Invalid unless log.dirs belong to the node and cluster that the configuration names."""
    check_identity(
        disks, cluster_id=config.cluster_id, node_id=config.node_id, source="the configuration"
    )


async def check_broker(config: ServiceConfig, broker: OwnBroker) -> None:
    """Invalid unless the broker behind the direct listener is ours and TIERED is attached safely.

    Unavailable while the broker does not answer: ask again.
    """
    cluster = await broker.describe_cluster()
    if cluster.cluster_id != config.cluster_id:
        raise Invalid(
            f"the broker at {broker.address} belongs to cluster {cluster.cluster_id}, "
            f"log.dirs to {config.cluster_id}"
        )
    check_listeners(config, await broker.broker_config(config.node_id))


def check_listeners(config: ServiceConfig, broker_config: Mapping[str, str | None]) -> None:
    """Invalid where TIERED carries replication or control (H21), or hides who a client is (H23)."""
    tiered = config.broker_tiered_listener_name.upper()
    if _inter_broker_listener(broker_config) == tiered:
        raise Invalid(
            f"listener {tiered} is the inter-broker listener: replica fetches would go through the "
            "proxy; set inter.broker.listener.name to another listener"
        )
    controllers = (broker_config.get("controller.listener.names") or "").split(",")
    if tiered in (name.strip().upper() for name in controllers):
        raise Invalid(
            f"listener {tiered} is a controller listener; give the proxy a listener of its own"
        )
    if broker_config.get("authorizer.class.name") in _NO_AUTHORIZER or config.allow_shared_identity:
        return
    protocol = _protocol_of(tiered, broker_config.get("listener.security.protocol.map") or "")
    if not protocol.startswith("SASL_"):
        raise Invalid(
            f"the broker has an authorizer and listener {tiered} is {protocol}: all clients would "
            "be one identity; use a SASL protocol there, or set allow_shared_identity"
        )


def _inter_broker_listener(broker_config: Mapping[str, str | None]) -> str:
    """Kafka's rule: the listener named, else the one called like the security protocol."""
    name = broker_config.get("inter.broker.listener.name")
    return (name or broker_config.get("security.inter.broker.protocol") or "PLAINTEXT").upper()


def _protocol_of(listener: str, protocol_map: str) -> str:
    pairs = (pair.partition(":") for pair in protocol_map.split(","))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    return protocols.get(listener, listener)
