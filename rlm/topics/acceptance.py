"""Accepts the retention that somebody else has set on a topic in mode tier (H14).

It becomes the topic's total retention, like any change of it: what a shorter one makes deletable is
confirmed, and goes after the delay of deletions, which can be undone. The brokers' own retention is
set back to -1, unless an operator sets it (retention.takeover=external). What is accepted is what
the brokers say now, or what the service has set back since (rlm.topics.keeper).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid, NotFound
from kip405.ids import Uuid
from rlm.plans.retention import AS_TOTAL, UNLIMITED
from rlm.topics.keeper import TakeoverAlarm
from rlm.topics.ports import Broker, Settings
from rlm.topics.retention_configs import RETENTION_BYTES, RETENTION_MS
from rlm.topics.rules import RetentionOptions
from rlm.topics.shortening import RetentionPlan
from rlm.topics.takeover import Settler, foreign_limits, is_taken_over
from rlm.topics.verbs import EnableOptions, Outcome, TopicVerbs
from rlmm.settings_records import TopicRecord, TotalRetention

log = structlog.get_logger(__name__)


class Alarms(Protocol):
    """What was seen of foreign bounds (rlm.topics.keeper.RetentionKeeper)."""

    @property
    def alarms(self) -> Mapping[Uuid, TakeoverAlarm]: ...

    def forget(self, topic_id: Uuid) -> None: ...


class Audit(Protocol):
    """Where decisions are written down (rlm.tasks.audit_log.AuditLog)."""

    async def retention_accepted(
        self, topic: TopicRecord, *, by: str, retention: TotalRetention
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """What can be accepted of a topic."""

    record: TopicRecord
    options: RetentionOptions


class RetentionAcceptance:
    """NotLeader: call the service of `error.leader`."""

    def __init__(
        self,
        *,
        verbs: TopicVerbs,
        settler: Settler,
        broker: Broker,
        settings: Settings,
        alarms: Alarms,
        audit: Audit,
        barrier_deadline_ms: int,
    ) -> None:
        self._verbs = verbs
        self._settler = settler
        self._broker = broker
        self._settings = settings
        self._alarms = alarms
        self._audit = audit
        self._barrier_deadline_ms = barrier_deadline_ms

    async def plan(self, name: str) -> RetentionPlan:
        """What would be accepted, and what it makes deletable now; alters nothing.

        NotFound: the topic is not enabled, or there is nothing to accept. Invalid: the brokers' own
        retention is in force (mode copy), or the values are not possible for the topic.
        """
        return await self._plan(name, await self._offer(name))

    async def accept(self, name: str, wanted: TotalRetention, *, by: str, yes: bool) -> Outcome:
        """Make `wanted`, which a plan has shown, the total retention; errors as of `plan`. Fenced:
        something else was set meanwhile, the topic has left mode tier, or data would become
        deletable, and no `yes`.
        """
        offer = await self._offer(name)
        plan = await self._plan(name, offer)
        if plan.change.wanted != wanted:
            raise Fenced(
                f"topic {name}: what was set on it has changed, it is now "
                f"{_words(plan.change.wanted)}; nothing was changed, look at it again"
            )
        if plan.deletable and not yes:
            raise Fenced(f"{plan.words}; --yes confirms it")
        await self._audit.retention_accepted(offer.record, by=by, retention=wanted)
        done = await self._verbs.change_taken_over(
            name, EnableOptions(by=by, retention=offer.options, yes=yes)
        )
        log.warning("retention_accepted", topic=name, by=by, retention=_words(wanted))
        if self._settler.alters_configs:
            self._alarms.forget(offer.record.topic_id)
        return done

    async def _plan(self, name: str, offer: _Offer) -> RetentionPlan:
        return await self._verbs.plan_retention(name, EnableOptions(retention=offer.options))

    async def _offer(self, name: str) -> _Offer:
        topic = await self._settler.led_topic(name)
        config = await self._broker.topic_config(name)
        await self._settings.barrier(self._barrier_deadline_ms)
        record = self._settings.view.topic(topic.topic_id)
        if record is None or record.state != "enabled":
            raise NotFound(f"topic {name} is not enabled")
        if not is_taken_over(record):
            raise Invalid(
                f"topic {name} is in mode copy, where the brokers' own retention is in force and "
                f"nothing is to be accepted; `rlm topics enable {name} --retention` says how long "
                "its remote data is kept"
            )
        alarm = self._alarms.alarms.get(record.topic_id)
        limits = foreign_limits(record, config) or (alarm.limits if alarm is not None else {})
        if not limits:
            raise NotFound(
                f"nobody has bounded the retention of topic {name} within the last hour: there is "
                f"nothing to accept; `rlm topics enable {name} --retention` changes the total one"
            )
        return _Offer(record=record, options=_options(record, limits))


def _words(retention: TotalRetention) -> str:
    return f"{RETENTION_MS}={retention.retention_ms}, {RETENTION_BYTES}={retention.retention_bytes}"


def _options(record: TopicRecord, limits: Mapping[str, int]) -> RetentionOptions:
    """What nobody has set stays as it was; a local retention may not be longer than the total."""

    def local(name: str, present: int) -> int | None:
        total = limits.get(name)
        exceeds = total is not None and (present == UNLIMITED or present > total)
        return AS_TOTAL if exceeds else None

    return RetentionOptions(
        retention_ms=limits.get(RETENTION_MS),
        retention_bytes=limits.get(RETENTION_BYTES),
        local_retention_ms=local(RETENTION_MS, record.local_retention_ms),
        local_retention_bytes=local(RETENTION_BYTES, record.local_retention_bytes),
    )
