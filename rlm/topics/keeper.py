"""Keeps topic configurations as their settings records require, at start and from then on (H14).

For each topic whose partition 0 is led here, it finishes a change that a crash interrupted. A
broker retention that was restored (by GitOps, by an operator) raises an alarm and, unless the
setting is `warn`, is set to -1 again. Must not know where alarms are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.topics.ports import Broker, NotLeader, Settings
from rlm.topics.rules import Config
from rlm.topics.takeover import Settler, bounds_of, is_taken_over, is_unfinished, needed_change
from rlm.topics.verbs import TopicVerbs
from rlmm.settings_records import TopicRecord

log = structlog.get_logger(__name__)

ENFORCE = "enforce"
_ALARM_KEPT_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverAlarm:
    """A foreign change of a taken-over retention; shown for one hour after it was last seen."""

    topic: str
    text: str
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
        barrier_deadline_ms: int,
    ) -> None:
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
            if self._may_alter(record, is_half_done=is_first_check and unfinished):
                await self._settler.settle(name, topic_id)
                log.info("topic_repaired", topic=name)
            else:
                return
        self._settled.add(topic_id)

    def _may_alter(self, record: TopicRecord, *, is_half_done: bool) -> bool:
        return self._takeover == ENFORCE or is_half_done or not is_taken_over(record)

    def _watch(self, record: TopicRecord, config: Config, *, is_half_done: bool) -> None:
        now_ms = self._clock.now_ms()
        bounds = bounds_of(config) if is_taken_over(record) else ""
        known = self._alarms.get(record.topic_id)
        if bounds and not is_half_done:
            follows = (
                "set back to -1, and given back by `rlm topics disable`"
                if self._takeover == ENFORCE
                else "left as it is (warn)"
            )
            text = (
                f"retention of {record.name} was taken over and is bounded again ({bounds}): the "
                f"broker deletes closed segments beyond that, uncopied ones too; {follows}"
            )
            self._alarms[record.topic_id] = TakeoverAlarm(
                topic=record.name, text=text, seen_at_ms=now_ms
            )
        elif known is not None and now_ms - known.seen_at_ms > _ALARM_KEPT_MS:
            del self._alarms[record.topic_id]
