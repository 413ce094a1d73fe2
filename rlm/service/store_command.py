"""What commands share that compare the stores with the ledger beside the services, or without any.

They read settings and ledger as a service does, and open the configured stores. Cluster, settings
topic and stores prove each other first: a single doubt ends a command before it writes anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka_clients.channel_security import ChannelSecurity
from kip405.acls import OUR_PRINCIPAL, missing_acls, of_principal
from kip405.contracts import RemoteStorageManager
from kip405.errors import Invalid, Unavailable
from kip405.ids import Uuid
from kip405.process import software_version
from rlm.broker.many import AllowedByAny
from rlm.broker.own_broker import AnyBroker
from rlm.clock import Clock, new_uuid
from rlm.config import ServiceConfig
from rlm.plans.formats import own_formats
from rlm.plans.rights import Role, Topics, When, least_acls
from rlm.service.formats import FormatGate
from rlm.service.metadata import (
    BARRIER_DEADLINE_MS,
    build_command_metadata,
    describe_through,
    kafka_connection,
)
from rlm.stores.connection import identity_problem, store_called
from rlm.stores.opened import OpenPlugin, beside, with_plugins
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.ledger_rebuild import UnlistedEvidence, check_all_stores, proven_cluster
from rlm.tasks.store_survey import StoreSurvey, StoreSurveyor
from rlm.topics.access import ClusterRights
from rlm.topics.needed_acls import not_granted, topics_of
from rlmm.manager import Metadata
from rlmm.settings_records import ClusterRecord
from rlmm.settings_view import SettingsView
from rlmm.topic import (
    LEDGER_TOPIC,
    SETTINGS_TOPIC,
    TopicSpec,
    create_topic,
    ledger_spec,
    settings_spec,
)
from rsm_plugins.threads import FINISH_MS, FileThreads

T = TypeVar("T")
_CLIENT_ID = "rlm-command"
_READ_MS = 120_000


@dataclass(frozen=True, slots=True)
class _Managers:
    """The stores of this command, each proven."""

    by_id: Mapping[Uuid, RemoteStorageManager]

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        if store_id not in self.by_id:
            raise Unavailable(f"store {store_id} is not in this configuration")
        return self.by_id[store_id]


async def run_store_command(
    config: ServiceConfig,
    clock: Clock,
    act: "Callable[[StoreCommand], Awaitable[T]]",
    *,
    without: Collection[Uuid],
) -> T:
    """Call `act` with everything opened, and close it. `without`: stores that are left out.

    Invalid where the brokers are another cluster's or refuse what it needs, Unavailable where none
    answers.
    """
    security = ChannelSecurity(config.kafka_security())
    brokers = AnyBroker(config.kafka_bootstrap_servers, client_id=_CLIENT_ID, security=security)
    allowed = AllowedByAny(config.kafka_bootstrap_servers, client_id=_CLIENT_ID, security=security)
    threads = FileThreads(1)

    async def with_stores(plugins: Sequence[OpenPlugin]) -> T:
        command = StoreCommand(
            config, clock, security, brokers, threads, frozenset(without), plugins
        )
        await command.check_settings_topic()
        return await act(command)

    try:
        found = (await brokers.describe_cluster()).cluster_id
        if found != config.cluster_id:
            raise Invalid(
                f"kafka.bootstrap.servers belong to cluster {found}, cluster.id is "
                f"{config.cluster_id}"
            )
        await _check_rights(config, allowed)
        return await with_plugins(config, clock, with_stores)
    finally:
        await threads.finish(FINISH_MS)
        await allowed.close()
        await brokers.close()


async def _check_rights(config: ServiceConfig, allowed: ClusterRights) -> None:
    """MissingAcls where this command's principal could not read what it needs, which would be a
    timeout without a reason. What brokers do not report is not missing.
    """
    needed = least_acls(Role.OPERATOR, OUR_PRINCIPAL, Topics(), {When.ALWAYS})
    missing = not_granted(needed, await allowed.on_topics(topics_of(needed)))
    if missing:
        principal = config.kafka_security().principal
        raise missing_acls("nothing was read", of_principal(missing, principal))


class StoreCommand:
    """One run of such a command. `survey` comes before everything that needs the stores."""

    def __init__(
        self,
        config: ServiceConfig,
        clock: Clock,
        security: ChannelSecurity,
        brokers: AnyBroker,
        threads: FileThreads,
        without: frozenset[Uuid],
        plugins: Sequence[OpenPlugin],
    ) -> None:
        self.cluster_id = config.cluster_id
        self._config = config
        self._clock = clock
        self._security = security
        self._brokers = brokers
        self._threads = threads
        self._without = without
        self._plugins = plugins
        self._describe = describe_through(brokers)
        self._managers = _Managers({})
        self._spec = ledger_spec(config.rlmm_config_remote_log_metadata_topic_replication_factor)

    async def check_settings_topic(self) -> None:
        """Invalid where it is missing: it alone has the remote log starts, and names topics."""
        if await self._topic_id(settings_spec(1)) is None:
            raise Invalid(
                f"topic {SETTINGS_TOPIC} is missing too: it has what was deleted, so a ledger "
                "without it would bring deleted records back. Restore it from a backup; `rlm "
                "download --plugin-config` writes the data of topics without either"
            )

    async def ledger_id(self) -> Uuid | None:
        """None = there is none. Invalid: there is one that cannot hold a ledger."""
        return await self._topic_id(self._spec)

    async def _topic_id(self, spec: TopicSpec) -> Uuid | None:
        found = await self._describe(spec.name)
        if found is None:
            return None
        topic_id, configs, partition_count = found
        faults = spec.faults(configs, partition_count)
        if faults is not None:
            raise Invalid(f"topic {spec.name} {faults}: change that, or delete the topic")
        return topic_id

    async def create_ledger(self) -> None:
        """As services create it, waiting for as many brokers as it needs."""
        connection = kafka_connection(self._config, self._security, _CLIENT_ID)
        await create_topic(self._spec, connection, self._clock.sleep_ms)

    async def with_metadata(
        self, act: Callable[[Metadata], Awaitable[T]], *, with_ledger: bool
    ) -> T:
        """Call `act` with settings and ledger, or settings alone, read to their ends."""
        metadata = build_command_metadata(
            self._config,
            self._security,
            brokers=self._brokers,
            clock=self._clock,
            writer=new_uuid(),
            with_ledger=with_ledger,
        )

        return await beside([metadata.log.run], partial(act_on_what_was_read, metadata, act))

    async def survey(self, metadata: Metadata) -> tuple[StoreSurvey, ...]:
        """All stores that the settings know, each proven now; Invalid where one is not."""
        view = metadata.settings.view
        self.proven(metadata)
        self._managers = _Managers(await self._proven_stores(view))
        check_all_stores(view, self._managers.by_id, self._without)
        surveyor = StoreSurveyor(cluster_id=self.cluster_id, topic_name=partial(_topic_name, view))
        return tuple(
            [
                await surveyor.survey(store, store_id)
                for store_id, store in self._managers.by_id.items()
            ]
        )

    def proven(self, metadata: Metadata) -> ClusterRecord:
        """The cluster record; Invalid where the settings do not prove to be this cluster's."""
        return proven_cluster(
            metadata.settings.view,
            cluster_id=self.cluster_id,
            settings_topic_id=metadata.log.topic_ids[SETTINGS_TOPIC],
        )

    def unlisted(self, metadata: Metadata) -> UnlistedEvidence:
        """Of the stores that were surveyed."""
        return UnlistedEvidence(
            ledger=metadata.manager if LEDGER_TOPIC in metadata.log.topic_ids else None,
            settings=metadata.settings,
            evidence=StoreEvidence(
                self._managers, cluster_id=self.cluster_id, threads=self._threads
            ),
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        )

    async def _proven_stores(self, view: SettingsView) -> dict[Uuid, RemoteStorageManager]:
        """By the ids that the settings know under their names; Invalid for any other store."""
        found: dict[Uuid, RemoteStorageManager] = {}
        for plugin in self._plugins:
            await plugin.started()
            name = plugin.store.name
            record = store_called(name, view.stores())
            if record is None:
                raise Invalid(f"the settings know no store called {name!r}")
            problem = await identity_problem(plugin.manager, record.store_id, self.cluster_id)
            if problem is not None:
                raise Invalid(f"store {name!r}: {problem}")
            if record.store_id not in self._without:
                found[record.store_id] = plugin.manager
        return found


async def act_on_what_was_read(metadata: Metadata, act: Callable[[Metadata], Awaitable[T]]) -> T:
    """Call `act` once all is read. Unavailable where it is not, Invalid where something is newer
    than what this version reads: like a service of this version, it writes nothing then (H6).
    """
    gate = FormatGate(metadata, own_formats(software_version()))
    try:
        async with asyncio.timeout(_READ_MS / 1000):
            await gate.check()
    except TimeoutError:
        why = metadata.log.problem or "no reason is known"
        raise Unavailable(f"{SETTINGS_TOPIC}, {LEDGER_TOPIC} are not read: {why}") from None
    return await act(metadata)


def _topic_name(view: SettingsView, topic_id: Uuid) -> str | None:
    record = view.topic(topic_id)
    return None if record is None else record.name
