"""Checks of the broker itself, of its listeners, and of what clients learn of them. Pure."""

from collections.abc import Iterator

from kip405.addresses import Address
from rlm.broker.answers import BrokerNode
from rlm.diagnosis.checks import Check, CheckFinding, alarm, note, warning
from rlm.diagnosis.observed import NotWanted, Observed, known
from rlm.plans.broker_listeners import BrokerConfig, inter_broker_listener, listener_refusals

_PER_IP = "max.connections.per.ip"
_OVERRIDES = "max.connections.per.ip.overrides"
_RATE = "connection_creation_rate"
_ALL_AGAIN_S = 10
"""Within which all clients of a proxy should be back after a restart."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _of_this_cluster(site: Observed) -> Iterator[CheckFinding]:
    broker, config = known(site.broker), site.config
    if broker.cluster_id != config.cluster_id:
        yield alarm(
            "broker",
            f"broker.direct.address {config.broker_direct_address} is of cluster "
            f"{broker.cluster_id}, cluster.id is {config.cluster_id}",
            "set broker.direct.address to the broker of these log.dirs",
        )
    if broker.too_old:
        yield alarm("broker", broker.too_old, "upgrade the broker, then start the service")


def _of_settings(site: Observed) -> Iterator[CheckFinding]:
    """The refusals of the start."""
    config = known(site.broker).config
    for refusal in listener_refusals(site.config, config):
        yield alarm(_listener(site), refusal.text, refusal.remedy)


def _is_there(site: Observed) -> Iterator[CheckFinding]:
    config, tiered = known(site.broker).config, site.config.broker_tiered_listener_name.upper()
    names = [name for name, _ in _bound(config)]
    if config.get("listeners") and tiered not in names:
        yield alarm(
            _listener(site),
            f"the broker has no listener {tiered}; it has {', '.join(names)}",
            f"add {tiered} to the broker's listeners, advertised.listeners and "
            "listener.security.protocol.map, or name another in broker.tiered.listener.name",
        )


def _past_the_proxy(site: Observed) -> Iterator[CheckFinding]:
    """A listener between brokers is reachable by others, and its proxies rewrite addresses. A proxy
    on another machine needs a port that it reaches: then only a note says that nobody else should.
    """
    config, tiered = known(site.broker).config, site.config.broker_tiered_listener_name.upper()
    if inter_broker_listener(config) == tiered:
        return
    for name, address in _bound(config):
        host = Address(host=address.rpartition(":")[0].strip("[]"))
        if name == tiered and not host.is_private:
            found = warning if site.config.broker_tiered_address.is_private else note
            yield found(
                _listener(site),
                f"the broker listens for {tiered} at {host.host or 'every address'}: a client that "
                "connects there comes past the proxy, and finds no trimmed record",
                f"bind {tiered} to 127.0.0.1 in the broker's listeners, or close the port to "
                "others by a firewall or NetworkPolicy",
            )


def _per_ip(site: Observed) -> Iterator[CheckFinding]:
    """To the broker all clients of the proxy come from one address."""
    config, needed = known(site.broker).config, site.config.proxy_max_connections
    host = site.config.broker_tiered_address.host
    overrides = dict(_pairs(config.get(_OVERRIDES) or ""))
    where = next((one for one in _names_of(host) if one in overrides), None)
    text = config.get(_PER_IP) if where is None else overrides[where]
    if text is None or not text.isdigit() or int(text) >= needed:
        return
    key = _PER_IP if where is None else _OVERRIDES
    yield warning(
        key,
        f"{key} allows {text} connections of an address, and all clients of the proxy come from "
        f"one: those beyond are refused, while the proxy lets {needed} in (proxy.max.connections)",
        f"set {_OVERRIDES}={host}:{needed} at the broker; proxy.max.connections.per.address limits "
        "clients by their own address",
    )


def _connection_rate(site: Observed) -> Iterator[CheckFinding]:
    """As of `_per_ip`. A broker holds up the connections beyond the rate, of all its clients."""
    rates, needed = known(site.connection_rates), site.config.proxy_max_connections
    host = site.config.broker_tiered_address.host
    where = next((one for one in _names_of(host) if one in rates), None)
    rate = rates.get(where)
    if rate is None or rate * _ALL_AGAIN_S >= needed:
        return
    yield warning(
        _RATE,
        f"the quota {_RATE} lets {rate:g} new connections a second of an address in, and all "
        f"clients of the proxy come from one: after a restart {needed} of them "
        "(proxy.max.connections) would wait for minutes or for ever",
        f"kafka-configs.sh --alter --entity-type ips --entity-name {host} "
        f"--add-config {_RATE}={-(-needed // _ALL_AGAIN_S)}",
    )


def _names_of(host: str) -> tuple[str, ...]:
    """By which the broker may have a limit for the address from which the proxy comes."""
    return (host, *_LOOPBACK) if host in _LOOPBACK else (host,)


def _as_client(site: Observed) -> Iterator[CheckFinding]:
    if site.client is None:
        raise NotWanted("--as-client was not given")
    client = known(site.client)
    if client.cluster_id != site.config.cluster_id:
        yield alarm(
            client.bootstrap,
            f"{client.bootstrap} is of cluster {client.cluster_id}, not of "
            f"{site.config.cluster_id}",
            "give clients the addresses of this cluster's proxies",
        )
        return
    for node in client.nodes:
        yield from _of_node(site, node, client.refused.get(node.node_id))


def _of_node(site: Observed, node: BrokerNode, refused: str | None) -> Iterator[CheckFinding]:
    learned, subject = Address(host=node.host, port=node.port), f"node {node.node_id}"
    if refused is not None:
        yield alarm(
            subject,
            f"clients learn {learned} as its address, and from here nobody connects there: "
            f"{refused}",
            "advertise an address that clients resolve and reach",
        )
    service = {one.node_id: one for one, _ in known(site.settings).view.services()}
    proxy = service[node.node_id].advertised.get("proxy") if node.node_id in service else None
    if proxy is None:
        yield alarm(
            subject,
            f"clients learn {learned} as its address, and no service beside this broker has "
            "published a proxy: there they find no trimmed record",
            "start `rlm serve` beside the broker, with proxy.advertised as clients reach it",
        )
    elif proxy.lower() != str(learned).lower() and not site.config.allow_other_advertised:
        yield alarm(
            subject,
            f"clients learn {learned} as its address, and its proxy is at {proxy}: they come past "
            "the proxy, and find no trimmed record",
            f"advertise the tiered listener of that broker at {proxy}, and begin at a proxy; where "
            "both lead there, set allow_other_advertised",
        )


def _listener(site: Observed) -> str:
    return f"listener {site.config.broker_tiered_listener_name.upper()}"


def _bound(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Names and addresses of `listeners`, as they are written there."""
    for item in (config.get("listeners") or "").split(","):
        name, separator, address = item.strip().partition("://")
        if separator:
            yield name.upper(), address


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Hosts and numbers of `host:number,...`."""
    for item in text.split(","):
        host, separator, number = item.strip().rpartition(":")
        if separator:
            yield host.strip("[]"), number.strip()


CHECKS = (
    Check(
        name="broker",
        asks="Is the broker of this cluster, and of a version that is supported?",
        remedy="Set broker.direct.address to the broker of these log.dirs; upgrade an old one.",
        decide=_of_this_cluster,
    ),
    Check(
        name="tiered-listener",
        asks="Does the broker have the listener of broker.tiered.listener.name?",
        remedy="Add the listener to the broker's configuration.",
        decide=_is_there,
    ),
    Check(
        name="listeners",
        asks="Does the tiered listener carry clients alone, advertised at the proxy, with the "
        "protocol that the proxy speaks, and with an identity of each client where there is an "
        "authorizer?",
        remedy="Change listeners, advertised.listeners or listener.security.protocol.map of the "
        "broker, as the finding says. `rlm serve` refuses to start before.",
        decide=_of_settings,
    ),
    Check(
        name="past-proxy",
        asks="Can clients reach the tiered listener past the proxy?",
        remedy="Bind the listener to loopback, or close its port to others.",
        decide=_past_the_proxy,
    ),
    Check(
        name="per-ip",
        asks="Does a limit of the broker for one address stop the clients of the proxy?",
        remedy="Override the limit for the proxy's address.",
        decide=_per_ip,
    ),
    Check(
        name="connection-rate",
        asks="Does a quota of connections a second for one address hold up the clients of the "
        "proxy?",
        remedy="Give the proxy's address a quota of its own, by kafka-configs.sh.",
        decide=_connection_rate,
    ),
    Check(
        name="as-client",
        asks="Does a client that begins at --as-client learn the addresses of proxies, and reach "
        "them? Made with that option only.",
        remedy="Advertise the proxies, at addresses that clients reach.",
        decide=_as_client,
    ),
)
