"""Start and lifetime of a service process: preconditions, logs, background tasks, stop signals.

A service beside a broker starts only if disks, broker and listeners are those of its configuration
and safe (H13, H21, H23); a refusal is one line. The proxy splits the stream into Kafka's frames, so
it is itself what speaks TLS with clients, and with a tiered listener that has TLS.

A background task that ends or fails is logged and restarted with back-off. A crash of a task, the
ledger client or a poller must not stop the proxy (H24).
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from kip405.errors import Invalid, RemoteStorageError
from rlm.broker.own_broker import OwnBroker
from rlm.clock import Clock, backoff_ms
from rlm.config import ServiceConfig
from rlm.config.broker_files import advertised_address, protocol_of
from rlm.config.environment import given_variables
from rlm.log_dir.identity import BrokerIdentity, check_identity
from rlm.workers.inherited import die_with_supervisor
from rsm_plugins.process.logs import configure_logs

log = structlog.get_logger()
_STEADY_MS = 30_000
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def keep_running(name: str, life: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `life` and restart it whenever it ends; returns only by cancellation."""
    failures = 0
    while True:
        began_ms = clock.monotonic_ms()
        try:
            await life()
            log.warning("component_ended", component=name)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("component_failed", component=name)
        failures = 0 if clock.monotonic_ms() - began_ms > _STEADY_MS else failures + 1
        await clock.sleep_ms(backoff_ms(failures))


async def until_stopped(serve: Coroutine[Any, Any, None], *, is_child: bool = False) -> None:
    """Run until SIGTERM or SIGINT; a child of a supervisor dies with that. A second signal, as of a
    terminal and of the supervisor, does not shorten the end. A RemoteStorageError that ends it is
    raised without its group.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve)
            for number in _STOP_SIGNALS:
                loop.add_signal_handler(number, _stop, serving, number.name)
            if is_child:
                die_with_supervisor(loop)
    except* RemoteStorageError as group_of_errors:
        raise _first(group_of_errors) from group_of_errors


class _Service(Protocol):
    async def run(self) -> None: ...

    async def close(self) -> None: ...


async def serving(make: Callable[[asyncio.TaskGroup], _Service]) -> None:
    """Run the service that `make` creates, close it, then end its background tasks, in the
    group.
    """
    async with Background() as tasks:
        service = make(tasks.group)
        try:
            await service.run()
        finally:
            await service.close()


async def keep_all_running(
    background_tasks: dict[str, Callable[[], Awaitable[None]]], clock: Clock
) -> None:
    """Run all components until cancelled; each one that fails is restarted without the others."""
    async with asyncio.TaskGroup() as group:
        for name, life in background_tasks.items():
            group.create_task(keep_running(name, life, clock))


class Background:
    """A TaskGroup whose tasks end with the block: nothing outlives the service."""

    def __init__(self) -> None:
        self.group = asyncio.TaskGroup()

    async def __aenter__(self) -> "Background":
        await self.group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        stop = asyncio.CancelledError()
        with contextlib.suppress(asyncio.CancelledError):
            await self.group.__aexit__(asyncio.CancelledError, stop, None)


def _stop(serving: asyncio.Task[None], signal_name: str) -> None:
    log.info("stopping", signal=signal_name)
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, log.info, "already_stopping")
    serving.cancel()


def _first(group: BaseExceptionGroup[RemoteStorageError]) -> RemoteStorageError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if not isinstance(found, RemoteStorageError):
        raise found
    return found


def configure_service_logs(*, level: str, log_format: str) -> None:
    """Set up structlog for this process, on stderr; other libraries log from level error on."""
    configure_logs(level=level, log_format=log_format)
    # aiokafka logs every failed connection as an error; our own code logs what matters.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(name)s %(message)s")


def log_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Which settings are not those of the file: the variables that give them, without values."""
    if given := sorted(given_variables(environment)):
        log.info("settings_of_environment", variables=given)


_NO_AUTHORIZER = ("", None)
_PLAIN = ("", "PLAINTEXT", "SASL_PLAINTEXT")
_SECURED = ("SSL", "SASL_SSL")


def check_disks(config: ServiceConfig, disks: BrokerIdentity) -> None:
    """Invalid unless the log.dirs belong to the configured node and cluster."""
    check_identity(
        disks, cluster_id=config.cluster_id, node_id=config.node_id, source="the configuration"
    )


async def check_broker(config: ServiceConfig, broker: OwnBroker) -> None:
    """Invalid unless the broker behind the direct listener is ours and of a version that is
    supported, and TIERED is set up safely.

    Unavailable: the broker does not answer yet; retry.
    """
    await broker.check_new_enough()
    cluster = await broker.describe_cluster()
    if cluster.cluster_id != config.cluster_id:
        raise Invalid(
            f"the broker at {broker.address} belongs to cluster {cluster.cluster_id}, "
            f"log.dirs to {config.cluster_id}"
        )
    check_listeners(config, await broker.broker_config(config.node_id))


def check_listeners(config: ServiceConfig, broker_config: Mapping[str, str | None]) -> None:
    """Invalid where TIERED carries replication or control traffic (H21), or hides a client's
    identity (H23). Where addresses are rewritten, followers come past the proxy.
    """
    tiered = config.broker_tiered_listener_name.upper()
    if _inter_broker_listener(broker_config) == tiered and not config.rewrites_addresses:
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
    _check_protocol(config, tiered, protocol)
    _check_advertised(config, tiered, broker_config)
    if broker_config.get("authorizer.class.name") in _NO_AUTHORIZER or config.allow_shared_identity:
        return
    if not protocol.startswith("SASL_"):
        raise Invalid(
            f"the broker has an authorizer and listener {tiered} is {protocol or tiered}: all "
            "clients would be one identity; use SASL_PLAINTEXT or SASL_SSL there, or set "
            "allow_shared_identity"
        )


def _check_protocol(config: ServiceConfig, tiered: str, protocol: str) -> None:
    """TLS to a plain listener, or none to one that has it, lets no client in; no more do delegation
    tokens without SASL.
    """
    if config.has_client_tokens and not protocol.startswith("SASL_"):
        raise Invalid(
            f"proxy.tls.client.identity: the proxy logs in with delegation tokens, and listener "
            f"{tiered} is {protocol or tiered}; make it SASL_PLAINTEXT or SASL_SSL in "
            "listener.security.protocol.map, or set sasl"
        )
    if protocol in _SECURED and not config.dials_tls:
        raise Invalid(
            f"listener {tiered} is {protocol}: give broker.tiered.tls.ca.file, so that the proxy "
            "speaks TLS to it; or bind it to loopback and make it PLAINTEXT, or SASL_PLAINTEXT "
            "where the broker has an authorizer, in listener.security.protocol.map"
        )
    if protocol in _PLAIN and config.dials_tls:
        raise Invalid(
            f"broker.tiered.tls.ca.file: listener {tiered} is {protocol or tiered}, without TLS; "
            "make it SSL or SASL_SSL, or take the setting away"
        )


def _check_advertised(
    config: ServiceConfig, tiered: str, broker_config: Mapping[str, str | None]
) -> None:
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
        raise Invalid(
            f"proxy.advertised is {wanted}, at which the broker advertises listener {tiered} "
            "itself: clients would come to the broker past the proxy; set proxy.advertised to the "
            "proxy's own address; where that one does lead to the proxy, set "
            "allow_other_advertised, or proxy.attach to listener"
        )
    if not config.rewrites_addresses and not is_same:
        raise Invalid(
            f"the broker advertises listener {tiered} at {advertised} and proxy.advertised is "
            f"{wanted}: clients would not come to the proxy; set {tiered}://{wanted} in the "
            f"broker's advertised.listeners, or proxy.advertised to {advertised}; where both lead "
            "to the proxy, set allow_other_advertised"
        )


def _inter_broker_listener(broker_config: Mapping[str, str | None]) -> str:
    """Kafka's rule: the configured listener, else the one named like the security protocol."""
    name = broker_config.get("inter.broker.listener.name")
    return (name or broker_config.get("security.inter.broker.protocol") or "PLAINTEXT").upper()
