"""Announces a shorter total retention, and enforces it after the delay `remote.delete.delay.ms`.

What makes data deletable can be undone for a while. The announcement is a settings record of its
own, and is read back before the shorter retention is written. The topic's record says which
retention is enforced, and only `PendingDeletions` makes that one shorter. So whichever of these
records is lost, late or written twice, data is kept longer, never shorter.

The service of the partition-0 leader does all of this, under the lock of the topic verbs, with
leader epochs and a barrier, like the verbs themselves (H10, H14). The age of an announcement needs
no writer's clock (H16).
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace

import structlog

from kip405.errors import Fenced, NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.plans.deletions import (
    DeletionStep,
    PendingDeletion,
    is_pending,
    next_step,
    pending_deletion,
)
from rlm.plans.retention import retention_in_force
from rlm.topics.ports import NotLeader, Settings
from rlm.topics.takeover import Settler
from rlmm.settings_records import (
    CAUSE_RETENTION,
    DELETES_BY_RETENTION,
    DeletionRecord,
    StartRecord,
    TopicRecord,
)
from rlmm.settings_view import SettingsView

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The leader epoch under which a topic's records are written, and how far the settings were
    read when it was decided.
    """

    leader_epoch: int
    seen: int


class Announcements:
    """Writes and removes the announcements of deletions."""

    def __init__(self, *, settings: Settings, clock: Clock, delay_ms: int) -> None:
        self._settings = settings
        self._clock = clock
        self._delay_ms = delay_ms

    def refuse_other(self, topic: str, topic_id: Uuid) -> None:
        """Fenced while a deletion of another kind is announced for the topic."""
        found = self._settings.view.deletion(topic_id)
        if found is not None and found.what != DELETES_BY_RETENTION:
            raise Fenced(f"topic {topic}: a deletion ({found.what}) by {found.by} is pending")

    async def announce(self, topic_id: Uuid, *, by: str, writing: Writing) -> None:
        """Durable and read back when this returns; the delay begins again."""
        record = DeletionRecord(
            topic_id=topic_id,
            what=DELETES_BY_RETENTION,
            by=by,
            delay_ms=self._delay_ms,
            decided_ms=self._clock.now_ms(),
        )
        await self._settings.publish(record, writing.leader_epoch, writing.seen)

    async def forget(self, topic_id: Uuid, writing: Writing) -> None:
        """Remove the announcement, if there is one."""
        found = self._settings.view.deletion(topic_id)
        if found is not None:
            await self._settings.tombstone(found.key, writing.leader_epoch, writing.seen)


_FOUND_BY = "this service: the retention was stored and never enforced"


class PendingDeletions:
    """Takes the next step of what was announced, or undoes it, for topics whose partition 0 is led
    here. Any service lists what is pending.
    """

    def __init__(
        self,
        *,
        announcements: Announcements,
        settler: Settler,
        settings: Settings,
        lock: asyncio.Lock,
        clock: Clock,
        interval_ms: int,
        barrier_deadline_ms: int,
    ) -> None:
        """`lock`: that of the topic verbs."""
        self._announcements = announcements
        self._settler = settler
        self._settings = settings
        self._lock = lock
        self._clock = clock
        self._interval_ms = interval_ms
        self._barrier_deadline_ms = barrier_deadline_ms

    async def run(self) -> None:
        """Check at every interval until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms)

    async def check(self) -> None:
        """One pass over all topics; a failure is logged and left to the next pass."""
        if not self._settings.is_ready:
            return
        for record in self._settings.view.topics():
            if self._next_step(record) is None:
                continue
            try:
                async with self._lock:
                    await self._advance(record.name, record.topic_id)
            except (NotLeader, NotFound):
                continue
            except RemoteStorageError as error:
                log.warning("deletion_not_advanced", topic=record.name, error=str(error))

    def pending(self, record: TopicRecord) -> PendingDeletion | None:
        """What is pending for a topic, by the view of this process."""
        return pending_deletion(
            self._settings.view,
            record,
            monotonic_ms=self._clock.monotonic_ms(),
            now_ms=self._clock.now_ms(),
        )

    async def listed(self) -> tuple[PendingDeletion, ...]:
        """What is pending, by the name of the topic; behind a barrier."""
        await self._settings.barrier(self._barrier_deadline_ms)
        records = sorted(self._settings.view.topics(), key=lambda record: record.name)
        return tuple(one for one in map(self.pending, records) if one is not None)

    async def undo(self, name: str) -> TopicRecord:
        """Make the retention that is in force the topic's retention; returns the topic's record.

        NotFound where nothing is pending (any more), NotLeader, Fenced: the settings changed
        meanwhile. The topic's record is written first: after a crash in between the announcement
        announces nothing.
        """
        async with self._lock:
            topic = await self._settler.led_topic(name)
            await self._settings.barrier(self._barrier_deadline_ms)
            view = self._settings.view
            record = view.topic(topic.topic_id)
            self._announcements.refuse_other(name, topic.topic_id)
            if record is None or not is_pending(record):
                raise NotFound(_nothing_pending(name, record, view))
            writing = Writing(leader_epoch=topic.partitions[0].leader_epoch, seen=view.next_offset)
            in_force = retention_in_force(record)
            restored = replace(
                record,
                retention_ms=in_force.retention_ms,
                retention_bytes=in_force.retention_bytes,
            )
            await self._write(restored, writing)
            log.info("deletion_undone", topic=name)
            with contextlib.suppress(Fenced):  # somebody has decided again meanwhile
                await self._announcements.forget(
                    topic.topic_id, replace(writing, seen=view.next_offset)
                )
            return restored

    async def _advance(self, name: str, topic_id: Uuid) -> None:
        """Everything is read again: what the pass saw may be old."""
        topic = await self._settler.led_topic(name)
        await self._settings.barrier(self._barrier_deadline_ms)
        view = self._settings.view
        record = view.topic(topic_id)
        if record is None or topic.topic_id != topic_id:
            raise NotFound(f"topic {name} with id {topic_id} is gone")
        writing = Writing(leader_epoch=topic.partitions[0].leader_epoch, seen=view.next_offset)
        step = self._next_step(record)
        if step is DeletionStep.ANNOUNCE:
            await self._announcements.announce(topic_id, by=_FOUND_BY, writing=writing)
        elif step is DeletionStep.WIDEN:
            await self._write(replace(record, enforced=retention_in_force(record)), writing)
        elif step is DeletionStep.ENFORCE:
            await self._write(replace(record, enforced=record.total), writing)
        elif step is DeletionStep.FORGET:
            await self._announcements.forget(topic_id, writing)
        if step is not None:
            log.info("deletion_advanced", topic=name, step=step.value)

    async def _write(self, record: TopicRecord, writing: Writing) -> None:
        await self._settings.publish(record, writing.leader_epoch, writing.seen)

    def _next_step(self, record: TopicRecord) -> DeletionStep | None:
        step = next_step(
            self._settings.view,
            record,
            monotonic_ms=self._clock.monotonic_ms(),
            now_ms=self._clock.now_ms(),
        )
        return None if step is DeletionStep.ENFORCE and self._settings.problem else step


def _nothing_pending(name: str, record: TopicRecord | None, view: SettingsView) -> str:
    if record is None or record.state != "enabled":
        return f"topic {name} is not enabled: no deletion is pending"
    starts = [
        f"{found.record.partition.partition} at {found.record.remote_log_start_offset}"
        for found in view.records()
        if isinstance(found.record, StartRecord)
        and found.record.partition.topic_id == record.topic_id
        and found.record.cause == CAUSE_RETENTION
    ]
    ended = f": what is below the remote log starts (partition {', '.join(starts)}) is gone"
    return (
        f"no deletion of topic {name} is pending: its retention is in force, and what it has "
        f"deleted cannot come back{ended if starts else ''}"
    )
