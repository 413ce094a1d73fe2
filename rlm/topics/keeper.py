"""Maintains what the topic verbs decided, from the start of the service until it ends.

RetentionKeeper keeps topic configurations as their settings records require (H14). For each topic
whose partition 0 is led here, it finishes a change that a crash interrupted. A broker retention
that somebody bounded (GitOps, an operator) raises an alarm. The setting `enforce` sets it to -1
again, but not for ever against a tool that insists (rlm.plans.retention_contests); `warn` and
`external` leave it.

RecreatedTopicWatch detects topics that were recreated under the name of an enabled topic (H39).
With `topics.reenable=same-name` the service of the new topic's partition-0 leader enables it like
the old one, with every check that enabling needs. None of the old topic's history becomes its own.
Must not know where alarms are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from kip405.acls import MissingAcls
from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.plans.problems import Finding
from rlm.plans.retention_contests import RetentionContests
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.ports import Broker, NotLeader, Settings
from rlm.topics.recreated import GoneTopic, PresentTopics, recreated, recreated_findings
from rlm.topics.rules import Config
from rlm.topics.takeover import (
    ENFORCE,
    EXTERNAL,
    Settler,
    bounds_of,
    foreign_limits,
    is_foreign_bound,
    is_taken_over,
    is_unfinished,
    needed_change,
)
from rlm.topics.verbs import TopicVerbs
from rlmm.settings_records import TopicRecord

log = structlog.get_logger(__name__)

_ALARM_KEPT_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverAlarm:
    """A foreign change of a taken-over retention; shown for one hour after it was last seen.
    `limits`: what was set, by name.
    """

    topic: str
    text: str
    limits: Mapping[str, int]
    seen_at_ms: int


class RetentionKeeper:
    """`repair` runs once; `run` until cancelled. `takeover` is the setting retention.takeover."""

    def __init__(
        self,
        *,
        verbs: TopicVerbs,
        settler: Settler,
        broker: Broker,
        settings: Settings,
        clock: Clock,
        interval_ms: int,
        takeover: str,
        contests: RetentionContests,
        barrier_deadline_ms: int,
    ) -> None:
        self._contests = contests
        self._verbs = verbs
        self._settler = settler
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._interval_ms = interval_ms
        self._takeover = takeover
        self._barrier_deadline_ms = barrier_deadline_ms
        self._settled: set[Uuid] = set()
        self._alarms: dict[Uuid, TakeoverAlarm] = {}

    @property
    def alarms(self) -> Mapping[Uuid, TakeoverAlarm]:
        """By topic id; shown by `status` and metrics."""
        return MappingProxyType(self._alarms)

    def forget(self, topic_id: Uuid) -> None:
        """End the alarm of a topic: what was set is accepted."""
        self._alarms.pop(topic_id, None)

    async def run(self) -> None:
        """Repair at every interval; a broker that is down is asked again."""
        while True:
            await self.repair()
            await self._clock.sleep_ms(self._interval_ms)

    async def repair(self) -> None:
        """One pass over all topics; a failure is logged and left to the next pass."""
        if not self._settings.is_ready:
            return
        for record in self._settings.view.topics():
            try:
                async with self._verbs.lock:
                    await self._keep(record.name, record.topic_id)
            except (NotLeader, NotFound):
                self._settled.discard(record.topic_id)
                self._alarms.pop(record.topic_id, None)
            except RemoteStorageError as error:
                log.warning("topic_not_kept", topic=record.name, error=str(error))

    async def _keep(self, name: str, topic_id: Uuid) -> None:
        topic = await self._settler.led_topic(name)
        config = await self._broker.topic_config(name)
        await self._settings.barrier(self._barrier_deadline_ms)
        record = self._settings.view.topic(topic_id)
        if record is None or topic.topic_id != topic_id:
            raise NotFound(f"topic {name} with id {topic_id} is gone")
        is_first_check = topic_id not in self._settled
        unfinished = is_unfinished(record, config)
        self._watch(record, config, is_half_done=is_first_check and unfinished)
        if needed_change(record, config) is not None or unfinished:
            if not self._may_alter(record, is_half_done=is_first_check and unfinished):
                return
            await self._settler.settle(name, topic_id)
            log.info("topic_repaired", topic=name)
            if bounds_of(config):
                self._contests.reverted(name, self._clock.monotonic_ms())
        self._settled.add(topic_id)

    def _may_alter(self, record: TopicRecord, *, is_half_done: bool) -> bool:
        if self._takeover == EXTERNAL:
            return not is_taken_over(record)
        if is_half_done or not is_taken_over(record):
            return True
        return self._takeover == ENFORCE and not self._is_given_up(record.name)

    def _is_given_up(self, topic: str) -> bool:
        return self._contests.is_given_up(topic, self._clock.monotonic_ms())

    def _watch(self, record: TopicRecord, config: Config, *, is_half_done: bool) -> None:
        now_ms = self._clock.now_ms()
        is_foreign = self._takeover == EXTERNAL or is_foreign_bound(record, config)
        bounds = bounds_of(config) if is_taken_over(record) and is_foreign else ""
        known = self._alarms.get(record.topic_id)
        if bounds and not is_half_done:
            if self._takeover == ENFORCE:
                self._contests.bounded(record.name, bounds, self._clock.monotonic_ms())
            text = (
                f"{record.name} is in mode tier and the broker's own retention is bounded "
                f"({bounds}): the broker deletes closed segments beyond that, uncopied ones too; "
                f"{self._what_follows(record.name)}; if it is what you want, `rlm topics "
                f"accept-retention {record.name}` makes it the total retention"
            )
            self._alarms[record.topic_id] = TakeoverAlarm(
                topic=record.name,
                text=text,
                limits=foreign_limits(record, config),
                seen_at_ms=now_ms,
            )
        elif known is not None and now_ms - known.seen_at_ms > _ALARM_KEPT_MS:
            del self._alarms[record.topic_id]

    def _what_follows(self, topic: str) -> str:
        if self._takeover == EXTERNAL:
            return (
                "nothing is trimmed before every broker says -1: set it (retention.takeover="
                f"external), `rlm topics enable {topic} --trim --emit kafka-configs` says how"
            )
        if self._takeover != ENFORCE:
            return "left as it is (retention.takeover=warn)"
        if self._is_given_up(topic):
            return (
                "left as it is, because somebody bounded it again after each of two reverts: stop "
                f"that, then `rlm topics trim {topic} on`"
            )
        return "set back to -1, and given back by `rlm topics disable`"


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
