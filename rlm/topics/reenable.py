"""Detects topics that were recreated under the name of an enabled topic, and may enable them (H39).

With `topics.reenable=same-name` the service of the new topic's partition-0 leader enables it like
the old one, with every check that enabling needs. None of the old topic's history becomes its own.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import structlog

from kip405.acls import MissingAcls
from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.plans.problems import Finding
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.ports import Broker, NotLeader, Settings
from rlm.topics.recreated import GoneTopic, PresentTopics, recreated, recreated_findings
from rlm.topics.verbs import TopicVerbs

log = structlog.get_logger(__name__)

SAME_NAME = "same-name"


class RecreatedTopicWatch:
    """`run` checks until cancelled; `reenable` is the setting topics.reenable."""

    def __init__(
        self,
        *,
        verbs: TopicVerbs,
        broker: Broker,
        settings: Settings,
        clock: Clock,
        interval_ms: int,
        reenable: str,
    ) -> None:
        self._verbs = verbs
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._interval_ms = interval_ms
        self._reenable = reenable
        self._present: PresentTopics | None = None
        self._why: dict[Uuid, str] = {}

    @property
    def why(self) -> Mapping[Uuid, str]:
        """By id of the new topic: what prevented this service from enabling it."""
        return MappingProxyType(self._why)

    def found(self) -> tuple[GoneTopic, ...]:
        """As last seen; nothing before the first check."""
        if self._present is None:
            return ()
        return recreated(topic_records(self._settings.view.records()), self._present)

    def findings(self) -> tuple[Finding, ...]:
        """What was found, as problems."""
        return recreated_findings(self.found(), self._why)

    async def run(self) -> None:
        """Check at every interval; a broker that does not answer is asked again."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms)

    async def check(self) -> None:
        """One pass over the names of all topics that have a settings record."""
        if not self._settings.is_ready:
            return
        try:
            self._present = await self._present_now()
        except RemoteStorageError as error:
            log.info("topics_not_seen", error=str(error))
            return
        found = self.found()
        self._why = {one: why for one, why in self._why.items() if one in _ids(found)}
        if self._reenable == SAME_NAME:
            for gone in found:
                await self._enable(gone)

    async def _present_now(self) -> PresentTopics:
        """For a topic that we may not describe, the id that was last seen."""
        names = {record.name for record in self._settings.view.topics()}
        try:
            return _by_name(await self._broker.topics(sorted(names)))
        except MissingAcls as error:
            hidden = names & {acl.resource_name for acl in error.acls}
            if not hidden:
                raise
            known = {name: one for name, one in (self._present or {}).items() if name in hidden}
            return known | _by_name(await self._broker.topics(sorted(names - hidden)))

    async def _enable(self, gone: GoneTopic) -> None:
        if gone.present_id is None:
            return
        try:
            await self._verbs.enable_like(gone.record, gone.present_id)
        except NotLeader:
            self._why.pop(gone.present_id, None)
        except RemoteStorageError as error:
            if self._why.get(gone.present_id) != str(error):
                log.warning("topic_not_enabled_again", topic=gone.record.name, error=str(error))
            self._why[gone.present_id] = str(error)
        else:
            log.info("topic_enabled_again", topic=gone.record.name, topic_id=str(gone.present_id))
            self._why.pop(gone.present_id, None)


def _by_name(topics: Iterable[TopicDescription]) -> dict[str, Uuid]:
    return {topic.name: topic.topic_id for topic in topics}


def _ids(found: tuple[GoneTopic, ...]) -> frozenset[Uuid | None]:
    return frozenset(gone.present_id for gone in found)
