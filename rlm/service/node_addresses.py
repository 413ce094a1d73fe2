"""Which addresses of nodes the proxy gives to clients (proxy.attach: rewrite), kept current.

They follow the settings topic, record by record. The addresses of all proxies are remembered in the
state dir, so that a service that has just started sends nobody past a proxy (H17).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog

from kafka_protocol.node_addresses import AddressLookup, NodeAddress, NodeAddresses, keep_addresses
from kip405.errors import Invalid, RemoteStorageError
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.plans.node_addresses import KnownProxies, observe_services, parse_node_address
from rlm.service.metadata import StateFile
from rlmm.settings_view import SettingsView
from rsm_plugins.threads import Threads

log = structlog.get_logger(__name__)


class ProxiesFile:
    """The file of proxy addresses of one service: several may have one state dir."""

    def __init__(self, config: ServiceConfig) -> None:
        name = f"{config.cluster_id}-{config.node_id}-proxies.json"
        self._file = StateFile(config.state_dir / name, config.cluster_id)

    @property
    def path(self) -> Path:
        return self._file.path

    def read(self) -> dict[int, NodeAddress]:
        """By node id; nothing before the first run. A file that is not ours is one that is not
        there: then clients wait for the settings, and no service that could serve refuses to.
        """
        try:
            return self._file.read(_parsed) or {}
        except Invalid as error:
            log.warning("proxy_addresses_not_read", error=str(error))
            return {}

    def write(self, proxies: Mapping[int, NodeAddress]) -> None:
        """Durable when this returns."""
        rows = {str(node): str_of(address) for node, address in sorted(proxies.items())}
        self._file.write({"proxies": rows})


def _parsed(content: dict[str, Any]) -> dict[int, NodeAddress]:
    found = {int(node): parse_node_address(text) for node, text in content["proxies"].items()}
    return {node: address for node, address in found.items() if address is not None}


def str_of(address: NodeAddress) -> str:
    """`host:port`, for `parse_node_address`."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


class _Settings(Protocol):
    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    @property
    def view(self) -> SettingsView: ...

    async def wait_changed(self) -> None: ...


class ProxyAddresses:
    """What a service that rewrites addresses knows; `current` and `settled` are AddressLookups."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        settings: _Settings,
        clock: Clock,
        threads: Threads,
        max_age_ms: int,
    ) -> None:
        """`max_age_ms`: age of a dead service's heartbeat."""
        self._settings = settings
        self._clock = clock
        self._threads = threads
        self._max_age_ms = max_age_ms
        self._node_id = config.node_id
        self._file = ProxiesFile(config)
        self._remembered: Mapping[int, NodeAddress] = self._file.read()
        self._known = KnownProxies(
            own_node_id=config.node_id,
            own=own_address(config),
            proxies=self._remembered,
        )

    def current(self) -> NodeAddresses:
        """As the settings were when they changed last."""
        return self._known.addresses

    def settled(self) -> NodeAddresses | None:
        """The same for proxy workers, None until the settings were read: a worker may know more of
        an earlier core.
        """
        return self._known.addresses if self._known.is_settled else None

    async def run(self) -> None:
        """Follow the settings until cancelled."""
        while True:
            self._see()
            proxies = self._known.proxies
            if proxies != self._remembered and await self._remember(proxies):
                continue
            self._see()  # what was read meanwhile
            await self._settings.wait_changed()

    async def _remember(self, proxies: Mapping[int, NodeAddress]) -> bool:
        """Whether it was possible. A disk that is full is no reason not to follow; the next change
        tries it again.
        """
        try:
            await self._threads.run(self._file.write, proxies)
        except (OSError, RemoteStorageError) as error:
            log.warning("proxy_addresses_not_written", path=str(self._file.path), error=str(error))
            return False
        self._remembered = proxies
        return True

    def _see(self) -> None:
        settings = self._settings
        if not settings.is_ready:
            return  # records of a replay may be older than what is remembered
        seen = observe_services(
            settings.view,
            self._node_id,
            monotonic_ms=self._clock.monotonic_ms(),
            max_age_ms=self._max_age_ms,
            is_certain=settings.problem is None,
        )
        if self._known.see(seen):
            shown = {node: str_of(one) for node, one in self._known.addresses.replaced.items()}
            log.info(
                "node_addresses", proxies=shown, others_named=self._known.addresses.keeps_others
            )


def own_address(config: ServiceConfig) -> NodeAddress:
    """Where clients reach the proxy of this service."""
    return NodeAddress(host=config.proxy_advertised.host, port=config.proxy_advertised.port)


def remembered_proxies(config: ServiceConfig) -> dict[int, NodeAddress]:
    """What is known of proxies before anything was read, this service's own among it."""
    return {**ProxiesFile(config).read(), config.node_id: own_address(config)}


def lookup_of(addresses: ProxyAddresses | None) -> AddressLookup:
    """For the proxy in this process. None: the broker itself advertises the proxy."""
    return keep_addresses if addresses is None else addresses.current


def lookup_for_workers(addresses: ProxyAddresses | None) -> AddressLookup:
    """Likewise."""
    return keep_addresses if addresses is None else addresses.settled
