"""Composes one run of `rlm doctor`: opens what is asked, makes all checks, closes everything.

It connects as the service of the configuration would, with its principal and its rights.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from kafka_clients.channel_security import ChannelSecurity
from kip405.addresses import Address
from kip405.errors import RemoteStorageError, Unavailable
from rlm.broker.answers import BrokerNode
from rlm.broker.many import AllowedOperations
from rlm.broker.own_broker import AnyBroker, OwnBroker
from rlm.broker.share_groups import BrokerShareGroups
from rlm.clock import Clock, new_uuid
from rlm.config import ServiceConfig
from rlm.diagnosis.checks import Examined, examine
from rlm.diagnosis.local import read_disks, read_host
from rlm.diagnosis.observed import ObservedClient, ObservedStore, Unasked
from rlm.diagnosis.service_calls import ask_service
from rlm.diagnosis.sources import Sources, ask
from rlm.diagnosis.table import CHECKS
from rlm.service.metadata import RememberedTopics, build_command_metadata
from rlm.stores.opened import OpenPlugin, beside, known_prefix, with_plugins
from rlm.stores.reports import prefix_of
from rlm.topics.cluster import OtherBrokers
from rlmm.settings_view import SettingsView
from rlmm.topic import SETTINGS_TOPIC
from rsm_plugins.threads import FINISH_MS, FileThreads

_CLIENT_ID = "rlm-command"
_CONNECT_SECONDS = 5
_SOONER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The result of every check. `no_broker`: why the broker could not be asked, so that only this
    machine and the stores are known; empty = it was.
    """

    examined: tuple[Examined, ...]
    no_broker: str


async def diagnose(
    config: ServiceConfig, clock: Clock, *, as_client: Address | None, answer_ms: int
) -> Diagnosis:
    """Ask every source once, and make all checks."""
    async with _opened(config, clock, as_client, answer_ms) as sources:
        site = await ask(sources, answer_ms)
    return Diagnosis(
        examined=tuple(examine(CHECKS, site)),
        no_broker=site.broker.reason if isinstance(site.broker, Unasked) else "",
    )


@asynccontextmanager
async def _opened(
    config: ServiceConfig, clock: Clock, as_client: Address | None, answer_ms: int
) -> AsyncIterator[Sources]:
    security = ChannelSecurity(config.kafka_security())
    direct = config.broker_direct_address
    broker = OwnBroker(direct, client_id=_CLIENT_ID, security=security)
    brokers = OtherBrokers(broker, client_id=_CLIENT_ID)
    rights = AllowedOperations(direct, client_id=_CLIENT_ID, security=security)
    groups = BrokerShareGroups(direct, clock=clock, client_id=_CLIENT_ID, security=security)
    threads, remembered = FileThreads(1), RememberedTopics(config.state_dir, config.cluster_id)
    try:
        yield Sources(
            config=config,
            clock=clock,
            broker=broker,
            brokers=brokers,
            rights=rights,
            share_groups=groups,
            read_settings=partial(_settings, config, security, clock, answer_ms),
            ask_stores=partial(with_plugins, config, clock, _stores),
            read_disks=partial(threads.run, read_disks, config),
            read_remembered=partial(threads.run, remembered.read),
            read_host=read_host,
            ask_service=partial(ask_service, config, clock, answer_ms),
            ask_client=None if as_client is None else partial(_client, as_client, security),
        )
    finally:
        await threads.finish(FINISH_MS)
        await groups.close()
        await rights.close()
        await brokers.close()
        await broker.close()


async def _settings(
    config: ServiceConfig, security: ChannelSecurity, clock: Clock, answer_ms: int
) -> SettingsView:
    """The settings topic to its end; the ledger is not read, which may be large. Unavailable, a
    little before the answer would be late: why it cannot be read.
    """
    brokers = AnyBroker(config.kafka_bootstrap_servers, client_id=_CLIENT_ID, security=security)
    metadata = build_command_metadata(
        config, security, brokers=brokers, clock=clock, writer=new_uuid(), with_ledger=False
    )

    async def read() -> SettingsView:
        try:
            async with asyncio.timeout(answer_ms * _SOONER / 1000):
                await metadata.log.wait_ready()
        except TimeoutError:
            why = metadata.log.problem or f"it takes longer than {answer_ms} ms"
            raise Unavailable(f"topic {SETTINGS_TOPIC} is not read: {why}") from None
        return metadata.settings.view

    try:
        return await beside([metadata.log.run], read)
    finally:
        await brokers.close()


async def _stores(plugins: Sequence[OpenPlugin]) -> tuple[ObservedStore, ...]:
    return tuple(await asyncio.gather(*(_store(one) for one in plugins)))


async def _store(plugin: OpenPlugin) -> ObservedStore:
    name = plugin.store.name
    try:
        await plugin.started()
        uri = (await plugin.manager.get_info()).store_uri
        identity = await plugin.manager.read_identity()
        findings = await plugin.manager.inspect()
    except RemoteStorageError as error:
        return ObservedStore(name=name, problem=str(error))
    prefix = prefix_of(uri, known_prefix(plugin.store))
    return ObservedStore(name=name, uri=uri, identity=identity, findings=findings, prefix=prefix)


async def _client(bootstrap: Address, security: ChannelSecurity) -> ObservedClient:
    broker = OwnBroker(bootstrap, client_id=_CLIENT_ID, security=security)
    try:
        cluster = await broker.describe_cluster()
    finally:
        await broker.close()
    refusals = await asyncio.gather(*(_refusal(node) for node in cluster.nodes))
    return ObservedClient(
        bootstrap=str(bootstrap),
        cluster_id=cluster.cluster_id,
        nodes=cluster.nodes,
        refused={
            node.node_id: why
            for node, why in zip(cluster.nodes, refusals, strict=True)
            if why is not None
        },
    )


async def _refusal(node: BrokerNode) -> str | None:
    """Why no connection to the address of this broker can be made; None = one was."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(node.host, node.port)
    except TimeoutError:
        return f"no answer within {_CONNECT_SECONDS} s"
    except OSError as error:
        return str(error)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None
