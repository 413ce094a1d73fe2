"""Asks every source once, all at the same time where they do not need each other.

A source that does not answer in time, or refuses, is `Unasked` with the reason; the others go on.
Only questions are sent: no topic, object or file is made or changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kip405.acls import Acl, of_principal
from kip405.errors import Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import ClusterDescription, TopicConfigValue, TopicDescription
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.diagnosis.observed import (
    Observed,
    ObservedBroker,
    ObservedClient,
    ObservedDisks,
    ObservedHost,
    ObservedOwnTopic,
    ObservedReaders,
    ObservedService,
    ObservedSettings,
    ObservedStore,
    ObservedTopic,
    Unasked,
)
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.access import ClusterRights, missing_of
from rlm.topics.cluster_retention import ConfigSource, LiveBrokers
from rlm.topics.needed_acls import needed_acls
from rlm.topics.ports import ShareGroups
from rlm.topics.recreated import is_gone_end
from rlm.topics.takeover import EXTERNAL
from rlmm.settings_records import TopicRecord
from rlmm.settings_view import SettingsView
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

T = TypeVar("T")


class Broker(Protocol):
    """This service's broker, at its direct listener (rlm.broker.OwnBroker)."""

    async def check_new_enough(self) -> None: ...

    async def describe_cluster(self) -> ClusterDescription: ...

    async def broker_config(self, node_id: int) -> Mapping[str, str | None]: ...

    async def connection_rates(self) -> Mapping[str | None, float]: ...

    async def topic(self, name: str) -> TopicDescription: ...

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that is asked. `read_settings` gives the settings topic, read to its end.
    `read_remembered`: see Observed. `ask_client` None: nobody wants to know what clients learn.
    """

    config: ServiceConfig
    clock: Clock
    broker: Broker
    brokers: LiveBrokers
    rights: ClusterRights
    share_groups: ShareGroups
    read_settings: Callable[[], Awaitable[SettingsView]]
    ask_stores: Callable[[], Awaitable[tuple[ObservedStore, ...]]]
    read_disks: Callable[[], Awaitable[ObservedDisks]]
    read_remembered: Callable[[], Awaitable[Mapping[str, Uuid]]]
    read_host: Callable[[], ObservedHost]
    ask_service: Callable[[SettingsView, Sequence[str]], Awaitable[ObservedService | None]]
    ask_client: Callable[[], Awaitable[ObservedClient]] | None = None


async def ask(sources: Sources, answer_ms: int) -> Observed:
    """What they answered; each source has `answer_ms` to answer."""
    within = _Within(answer_ms)
    broker, disks, stores, own_topics, settings, client = await asyncio.gather(
        within.answer(_broker(sources)),
        within.answer(sources.read_disks()),
        within.answer(sources.ask_stores()),
        within.answer(_own_topics(sources.broker)),
        within.answer(_settings(sources)),
        _client(sources, within),
    )
    topics: tuple[ObservedTopic, ...] | Unasked = _without_settings(settings)
    readers: Mapping[str, ObservedReaders] | Unasked = _without_settings(settings)
    service: ObservedService | Unasked | None = _without_settings(settings)
    if isinstance(settings, ObservedSettings):
        topics = await within.answer(_topics(sources, settings.view))
        trimmed = _trimmed(settings.view, topics)
        readers, service = await asyncio.gather(
            within.answer(_readers(sources, trimmed)),
            within.answer(sources.ask_service(settings.view, trimmed)),
        )
    return Observed(
        config=sources.config,
        host=sources.read_host(),
        disks=disks,
        broker=broker,
        connection_rates=broker
        if isinstance(broker, Unasked)
        else await within.answer(sources.broker.connection_rates()),
        settings=settings,
        own_topics=own_topics,
        remembered=await within.answer(sources.read_remembered()),
        topics=topics,
        missing_acls=broker
        if isinstance(broker, Unasked)
        else await within.answer(_missing_acls(sources, settings)),
        stores=stores,
        readers=readers,
        service=service,
        client=client,
    )


class _Within:
    """Bounds each question."""

    def __init__(self, answer_ms: int) -> None:
        self._answer_ms = answer_ms

    async def answer(self, question: Awaitable[T]) -> T | Unasked:
        """What was answered, or why nothing was."""
        try:
            async with asyncio.timeout(self._answer_ms / 1000):
                return await question
        except TimeoutError:
            return Unasked(reason=f"no answer within {self._answer_ms} ms")
        except RemoteStorageError as error:
            return Unasked(reason=str(error))


def _without_settings(settings: ObservedSettings | Unasked) -> Unasked:
    why = settings.reason if isinstance(settings, Unasked) else ""
    return Unasked(reason=f"the settings are not known: {why}")


async def _broker(sources: Sources) -> ObservedBroker:
    broker, too_old = sources.broker, ""
    try:
        await broker.check_new_enough()
    except Invalid as error:
        too_old = str(error)
    cluster = await broker.describe_cluster()
    return ObservedBroker(
        cluster_id=cluster.cluster_id,
        nodes=cluster.nodes,
        config=await broker.broker_config(sources.config.node_id),
        too_old=too_old,
    )


async def _settings(sources: Sources) -> ObservedSettings:
    view, is_there = SettingsView(), True
    try:
        await sources.broker.topic(SETTINGS_TOPIC)
    except NotFound:
        is_there = False
    else:
        view = await sources.read_settings()
    return ObservedSettings(
        view=view,
        monotonic_ms=sources.clock.monotonic_ms(),
        now_ms=sources.clock.now_ms(),
        is_there=is_there,
    )


async def _own_topics(broker: Broker) -> Mapping[str, ObservedOwnTopic]:
    return {name: await _own_topic(broker, name) for name in (SETTINGS_TOPIC, LEDGER_TOPIC)}


async def _own_topic(broker: Broker, name: str) -> ObservedOwnTopic:
    try:
        topic = await broker.topic(name)
    except NotFound:
        return ObservedOwnTopic(found=None, least_replicas=0)
    configs = await broker.topic_config(name)
    values = {key: row.value for key, row in configs.items() if row.value is not None}
    return ObservedOwnTopic(
        found=(topic.topic_id, values, len(topic.partitions)),
        least_replicas=min((len(row.replicas) for row in topic.partitions.values()), default=0),
    )


async def _topics(sources: Sources, view: SettingsView) -> tuple[ObservedTopic, ...]:
    records = [
        one for one in topic_records(view.records()) if one.state == "enabled" or is_gone_end(one)
    ]
    if not records:
        return ()
    brokers = await sources.brokers.sources()
    return tuple(await asyncio.gather(*(_topic(sources.broker, brokers, one) for one in records)))


async def _topic(
    broker: Broker, brokers: Mapping[int, ConfigSource], record: TopicRecord
) -> ObservedTopic:
    try:
        description = await broker.topic(record.name)
    except NotFound:
        return ObservedTopic(record=record, description=None, configs={})
    configs = await asyncio.gather(*(_config(one, record.name) for one in brokers.values()))
    return ObservedTopic(
        record=record, description=description, configs=dict(zip(brokers, configs, strict=True))
    )


async def _config(broker: ConfigSource, topic: str) -> Mapping[str, TopicConfigValue] | Unasked:
    try:
        return await broker.topic_config(topic)
    except RemoteStorageError as error:
        return Unasked(reason=str(error))


async def _missing_acls(sources: Sources, settings: ObservedSettings | Unasked) -> tuple[Acl, ...]:
    """Of the service's own topics too where it may not read them, and so knows no other topic."""
    records = settings.view.topics() if isinstance(settings, ObservedSettings) else ()
    config = sources.config
    needed = needed_acls(records, alters_configs=config.retention_takeover != EXTERNAL)
    missing = await missing_of(sources.rights, needed)
    if missing is None:
        raise Unavailable("the broker does not say which operations it allows this principal")
    return tuple(of_principal(missing, config.kafka_security().principal))


def _trimmed(view: SettingsView, topics: Sequence[ObservedTopic] | Unasked) -> Sequence[str]:
    """Without those that were deleted: they have no readers any more."""
    observed = () if isinstance(topics, Unasked) else topics
    gone = {one.record.name for one in observed if one.description is None}
    trimmed = {one.name for one in view.topics() if one.state == "enabled" and one.trim}
    return sorted(trimmed - gone)


async def _readers(sources: Sources, trimmed: Sequence[str]) -> Mapping[str, ObservedReaders]:
    return {
        name: ObservedReaders(share_starts=await sources.share_groups.starts_now(name))
        for name in trimmed
    }


async def _client(sources: Sources, within: _Within) -> ObservedClient | Unasked | None:
    return None if sources.ask_client is None else await within.answer(sources.ask_client())
