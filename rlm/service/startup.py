"""The preconditions of a service beside a broker (H13, H21, H23); a refusal is one line.

The proxy splits the stream into Kafka's frames, so it cannot serve a tiered listener with TLS.
"""

from collections.abc import Mapping

from kip405.errors import Invalid
from rlm.broker.own_broker import OwnBroker
from rlm.config import ServiceConfig
from rlm.config.broker_files import advertised_address, protocol_of
from rlm.log_dir.identity import BrokerIdentity, check_identity

_NO_AUTHORIZER = ("", None)
_READABLE = ("", "PLAINTEXT", "SASL_PLAINTEXT")


def check_disks(config: ServiceConfig, disks: BrokerIdentity) -> None:
    """Invalid unless the log.dirs belong to the configured node and cluster."""
    check_identity(
        disks, cluster_id=config.cluster_id, node_id=config.node_id, source="the configuration"
    )


async def check_broker(config: ServiceConfig, broker: OwnBroker) -> None:
    """Invalid unless the broker behind the direct listener is ours and TIERED is set up safely.

    Unavailable: the broker does not answer yet; retry.
    """
    cluster = await broker.describe_cluster()
    if cluster.cluster_id != config.cluster_id:
        raise Invalid(
            f"the broker at {broker.address} belongs to cluster {cluster.cluster_id}, "
            f"log.dirs to {config.cluster_id}"
        )
    check_listeners(config, await broker.broker_config(config.node_id))


def check_listeners(config: ServiceConfig, broker_config: Mapping[str, str | None]) -> None:
    """Invalid where TIERED carries replication or control traffic (H21), or hides a client's
    identity (H23).
    """
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
    protocol = protocol_of(tiered, broker_config.get("listener.security.protocol.map") or "")
    if protocol not in _READABLE:
        raise Invalid(
            f"listener {tiered} is {protocol}, which the proxy cannot read; make it PLAINTEXT, or "
            "SASL_PLAINTEXT where the broker has an authorizer, in listener.security.protocol.map"
        )
    _check_advertised(config, tiered, broker_config)
    if broker_config.get("authorizer.class.name") in _NO_AUTHORIZER or config.allow_shared_identity:
        return
    if not protocol.startswith("SASL_"):
        raise Invalid(
            f"the broker has an authorizer and listener {tiered} is {protocol or tiered}: all "
            "clients would be one identity; use SASL_PLAINTEXT there, or set allow_shared_identity"
        )


def _check_advertised(
    config: ServiceConfig, tiered: str, broker_config: Mapping[str, str | None]
) -> None:
    """Clients connect to the advertised address; one that is not the proxy's leads them past the
    proxy, or nowhere.
    """
    listeners = broker_config.get("advertised.listeners") or broker_config.get("listeners") or ""
    told = advertised_address(tiered, listeners)
    wanted = config.proxy_advertised
    if told is None or config.allow_other_advertised:
        return
    if (told.host.lower(), told.port) != (wanted.host.lower(), wanted.port):
        raise Invalid(
            f"the broker advertises listener {tiered} at {told} and proxy.advertised is {wanted}: "
            f"clients would not come to the proxy; set {tiered}://{wanted} in the broker's "
            f"advertised.listeners, or proxy.advertised to {told}; where both lead to the proxy, "
            "set allow_other_advertised"
        )


def _inter_broker_listener(broker_config: Mapping[str, str | None]) -> str:
    """Kafka's rule: the configured listener, else the one named like the security protocol."""
    name = broker_config.get("inter.broker.listener.name")
    return (name or broker_config.get("security.inter.broker.protocol") or "PLAINTEXT").upper()
