"""What of a broker's listeners forbids a service beside it: identities, TLS, addresses. Pure.

A service refuses to start for the first of these; `rlm doctor` names all of them. The broker's
configuration is that of DescribeConfigs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rlm.config import ServiceConfig
from rlm.config.broker_files import advertised_address, protocol_of

BrokerConfig = Mapping[str, str | None]

_NO_AUTHORIZER = ("", None)
_PLAIN = ("", "PLAINTEXT", "SASL_PLAINTEXT")
_SECURED = ("SSL", "SASL_SSL")


class Refusal(NamedTuple):
    """Why a service must not run like this, and what mends it."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}"


def listener_refusals(config: ServiceConfig, broker_config: BrokerConfig) -> Iterator[Refusal]:
    """TIERED carries replication or control traffic (H21), or hides a client's identity (H23), or
    does not fit the settings of the proxy. Where addresses are rewritten, followers come past the
    proxy.
    """
    tiered = config.broker_tiered_listener_name.upper()
    if inter_broker_listener(broker_config) == tiered and not config.rewrites_addresses:
        yield Refusal(
            f"listener {tiered} is the inter-broker listener: replica fetches would go through the "
            "proxy",
            "set inter.broker.listener.name to another listener",
        )
    controllers = (broker_config.get("controller.listener.names") or "").split(",")
    if tiered in (name.strip().upper() for name in controllers):
        yield Refusal(
            f"listener {tiered} is a controller listener", "give the proxy a listener of its own"
        )
    protocol = protocol_of(tiered, broker_config.get("listener.security.protocol.map") or "")
    yield from _of_protocol(config, tiered, protocol)
    yield from _of_advertised(config, tiered, broker_config)
    if broker_config.get("authorizer.class.name") in _NO_AUTHORIZER or config.allow_shared_identity:
        return
    if not protocol.startswith("SASL_"):
        yield Refusal(
            f"the broker has an authorizer and listener {tiered} is {protocol or tiered}: all "
            "clients would be one identity",
            "use SASL_PLAINTEXT or SASL_SSL there, or set allow_shared_identity",
        )


def _of_protocol(config: ServiceConfig, tiered: str, protocol: str) -> Iterator[Refusal]:
    """TLS to a plain listener, or none to one that has it, lets no client in; no more do delegation
    tokens without SASL.
    """
    if config.has_client_tokens and not protocol.startswith("SASL_"):
        yield Refusal(
            f"proxy.tls.client.identity: the proxy logs in with delegation tokens, and listener "
            f"{tiered} is {protocol or tiered}",
            "make it SASL_PLAINTEXT or SASL_SSL in listener.security.protocol.map, or set sasl",
        )
    if protocol in _SECURED and not config.dials_tls:
        yield Refusal(
            f"listener {tiered} is {protocol}, and the proxy does not speak TLS to it",
            "give broker.tiered.tls.ca.file; or bind the listener to loopback and make it "
            "PLAINTEXT, or SASL_PLAINTEXT where the broker has an authorizer, in "
            "listener.security.protocol.map",
        )
    if protocol in _PLAIN and config.dials_tls:
        yield Refusal(
            f"broker.tiered.tls.ca.file: listener {tiered} is {protocol or tiered}, without TLS",
            "make it SSL or SASL_SSL, or take the setting away",
        )


def _of_advertised(
    config: ServiceConfig, tiered: str, broker_config: BrokerConfig
) -> Iterator[Refusal]:
    """Clients connect to the advertised address; one that is not the proxy's leads them past the
    proxy, or nowhere. Where addresses are rewritten, the proxy's must not be the broker's own.
    """
    listeners = broker_config.get("advertised.listeners") or broker_config.get("listeners") or ""
    advertised = advertised_address(tiered, listeners)
    wanted = config.proxy_advertised
    if advertised is None or config.allow_other_advertised:
        return
    is_same = (advertised.host.lower(), advertised.port) == (wanted.host.lower(), wanted.port)
    if config.rewrites_addresses and is_same:
        yield Refusal(
            f"proxy.advertised is {wanted}, at which the broker advertises listener {tiered} "
            "itself: clients would come to the broker past the proxy",
            "set proxy.advertised to the proxy's own address; where that one does lead to the "
            "proxy, set allow_other_advertised, or proxy.attach to listener",
        )
    if not config.rewrites_addresses and not is_same:
        yield Refusal(
            f"the broker advertises listener {tiered} at {advertised} and proxy.advertised is "
            f"{wanted}: clients would not come to the proxy",
            f"set {tiered}://{wanted} in the broker's advertised.listeners, or proxy.advertised to "
            f"{advertised}; where both lead to the proxy, set allow_other_advertised",
        )


def inter_broker_listener(broker_config: BrokerConfig) -> str:
    """Kafka's rule: the configured listener, else the one named like the security protocol."""
    name = broker_config.get("inter.broker.listener.name")
    return (name or broker_config.get("security.inter.broker.protocol") or "PLAINTEXT").upper()
