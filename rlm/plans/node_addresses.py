"""Decides which addresses of nodes clients are given where the proxy rewrites them. Pure.

A client that reaches a broker past its proxy gets OFFSET_OUT_OF_RANGE for what only the remote tier
has, and skips it (H19). There it also learns the own addresses of all brokers, and goes on past
every proxy. So an address that a proxy was ever known to have is given up on certain evidence only,
and once anything was trimmed, a node without a proxy is not named at all:

- This service's own node has its own proxy, whatever is known of others.
- A node whose service has published its proxy's address has that one, also while the service is
  away: its clients wait for it, as those of a broker that is away (H24).
- If that service is certainly dead, and no topic has anything to do with the remote tier, the node
  has its own address again: no broker can miss anything then.
- A node that no settings record names has its own address, as long as no settings record says that
  anything was trimmed. After that it is left out, as a broker leaves out those without a listener
  of that name; trims wait until no such node is left (`rlm.plans.trim`), so it joined later.
- Before the settings were read to their end, a node of which nothing is remembered is left out, and
  clients ask again (H17).

Whether a service is dead is known only to one that hears its own heartbeats: to any other, all
services look dead (G1, H16).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.addresses import Address
from kip405.errors import Invalid
from rlmm.settings_records import ServiceRecord
from rlmm.settings_view import SettingsView

_PROXY = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObservation:
    """What the settings say now. `proxies`: addresses by node id. `dead`: nodes whose service is
    certainly dead. `has_trims`: brokers may miss records. `is_certain`: the settings were read to
    their end, and nothing is wrong with them.
    """

    proxies: Mapping[int, NodeAddress]
    dead: frozenset[int]
    has_topics: bool
    has_trims: bool
    is_certain: bool


def observe_services(
    view: SettingsView, own_node_id: int, *, monotonic_ms: int, max_age_ms: int, is_certain: bool
) -> ServiceObservation:
    """`max_age_ms`: age of a dead service's heartbeat, by this process's clock alone."""
    records = {record.node_id: record for record, _ in view.services()}
    follows = view.followed_ms(monotonic_ms) > max_age_ms

    def is_dead(record: ServiceRecord) -> bool:
        age_ms = view.heard_age_ms(record.key, monotonic_ms)
        return follows if age_ms is None else age_ms > max_age_ms

    own = records.get(own_node_id)
    own_age_ms = None if own is None else view.heard_age_ms(own.key, monotonic_ms)
    hears_itself = own_age_ms is not None and own_age_ms <= max_age_ms
    proxies = {node_id: proxy_of(record) for node_id, record in records.items()}
    return ServiceObservation(
        proxies={node_id: address for node_id, address in proxies.items() if address is not None},
        dead=frozenset(
            node_id for node_id, record in records.items() if hears_itself and is_dead(record)
        ),
        has_topics=view.has_topics,
        has_trims=view.has_topics and view.has_trims,
        is_certain=is_certain,
    )


def proxy_of(record: ServiceRecord) -> NodeAddress | None:
    """The address at which the service's proxy is for clients; None = it does not say."""
    return parse_node_address(record.advertised.get(_PROXY, ""))


def parse_node_address(text: str) -> NodeAddress | None:
    """`host:port` for clients, None for anything else."""
    with suppress(Invalid):
        address = Address.parse(text)
        if not address.is_unix:
            return NodeAddress(host=address.host, port=address.port)
    return None


@dataclass(slots=True, kw_only=True)
class KnownProxies:
    """What a process knows of the proxies: at first those that an earlier one has remembered.

    `is_settled`: the settings were once read to their end.
    """

    own_node_id: int
    own: NodeAddress
    proxies: Mapping[int, NodeAddress]
    addresses: NodeAddresses = field(init=False)
    is_settled: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._take(self.proxies, gone=frozenset(), keeps_others=False)

    def see(self, seen: ServiceObservation) -> bool:
        """Take a new observation; whether `addresses` have changed.

        What is seen in doubt adds to what is known, and takes nothing away: a settings topic that
        was lost names no service (H6).
        """
        before = self.addresses
        if seen.is_certain:
            self.is_settled = True
            gone = frozenset() if seen.has_topics else seen.dead
            self._take(seen.proxies, gone, keeps_others=not seen.has_trims)
        else:
            given_up = frozenset(self.proxies) - before.replaced.keys()
            self._take(
                {**self.proxies, **seen.proxies},
                gone=frozenset() if seen.has_topics else given_up,
                keeps_others=before.keeps_others and not seen.has_trims,
            )
        return self.addresses != before

    def _take(
        self, proxies: Mapping[int, NodeAddress], gone: frozenset[int], *, keeps_others: bool
    ) -> None:
        self.proxies = {**proxies, self.own_node_id: self.own}
        gone -= {self.own_node_id}
        replaced = {node: address for node, address in self.proxies.items() if node not in gone}
        self.addresses = NodeAddresses(replaced=replaced, keeps_others=keeps_others)
