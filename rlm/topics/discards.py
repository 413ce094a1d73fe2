"""Decides, lists and undoes `rlm partition discard`: the remote part of a frozen partition is given
up (H4).

The service of the partition's leader decides and undoes, since only it sees the log that stays. The
decision is a settings record, read back before an operator is told that it counts; after the delay
`rlm/tasks/discard.py` carries it out. Until then nothing is deleted, and nothing else is changed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid, NotFound
from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.discard import (
    BEGUN,
    OwnPart,
    RemotePart,
    is_same_log,
    last_epoch,
    own_part,
    remote_part,
)
from rlm.remote_log.ports import Settings
from rlm.remote_log.snapshots import PartitionSnapshot
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import DiscardRecord

log = structlog.get_logger(__name__)


class Ledger(Protocol):
    """The metadata of segments (rlmm's manager)."""

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardPlan:
    """What a discard deletes, how much of it is of the leader's own history, and the log that
    stays: [log_start_offset, log_end_offset).
    """

    topic: str
    partition: int
    frozen: str
    remote: RemotePart
    own: OwnPart
    log_start_offset: int
    log_end_offset: int
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDiscard:
    """A decision on record; `due_in_ms`: nothing is deleted earlier. `remote`: what is left."""

    topic: str
    record: DiscardRecord
    due_in_ms: int
    remote: RemotePart


class Discards:
    """`snapshot` takes one now, Fenced where the partition is not led here. `unmark` removes the
    partition-delete record of an enabled topic. `lock`: see rlm.tasks.discard.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[PartitionKey], Awaitable[PartitionSnapshot]],
        ledger: Ledger,
        settings: Settings,
        unmark: Callable[[PartitionKey], Awaitable[None]],
        lock: asyncio.Lock,
        clock: Clock,
        delay_ms: int,
        barrier_deadline_ms: int,
    ) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._settings = settings
        self._unmark = unmark
        self._lock = lock
        self._clock = clock
        self._delay_ms = delay_ms
        self._barrier_deadline_ms = barrier_deadline_ms

    async def plan(self, key: PartitionKey) -> DiscardPlan:
        """What a decision now would delete. Invalid: the partition is not frozen by its lineage,
        its topic is not enabled, or the decision was made already.
        """
        return self._plan(await self._snapshot(key))

    async def decide(self, key: PartitionKey, *, by: str) -> DiscardPlan:
        """Record the decision, durable and read back. Errors as `plan`; Fenced: the settings
        changed meanwhile.
        """
        snapshot = await self._snapshot(key)
        plan = self._plan(snapshot)
        record = DiscardRecord(
            partition=key,
            by=by,
            why=plan.frozen,
            epoch=snapshot.led.leader_epoch,
            last_epoch=last_epoch(
                snapshot.log.lineage,
                log_start_offset=plan.log_start_offset,
                log_end_offset=plan.log_end_offset,
            ),
            offset=plan.log_end_offset,
            delay_ms=self._delay_ms,
            decided_ms=self._clock.now_ms(),
        )
        await self._settings.publish(record, snapshot.led.leader_epoch)
        log.warning("discard_decided", topic=plan.topic, partition=plan.partition, by=by)
        return plan

    async def undo(self, key: PartitionKey) -> None:
        """Take the decision back. NotFound: there is none. Fenced: segments are being deleted, or
        all are; of a deletion that stopped midway, as another log leads, the rest is kept.
        """
        snapshot = await self._snapshot(key)
        async with self._lock:
            await self._settings.barrier(self._barrier_deadline_ms)
            await self._ledger.barrier(key, self._barrier_deadline_ms)
            record = self._settings.view.discard(key)
            partition = snapshot.led.topic_id_partition
            ledger = self._ledger.ledger(key)
            has_begun = ledger.deletion_state in BEGUN
            if record is None and not has_begun:
                raise NotFound(f"{partition}: no discard is pending")
            goes_on = record is not None and (ledger.is_deleted or _goes_on(record, snapshot))
            if has_begun and goes_on:
                raise Fenced(f"{partition}: its remote segments are being deleted already")
            if has_begun:
                await self._unmark(key)
            if record is not None:
                await self._settings.tombstone(record.key, snapshot.led.leader_epoch)
        log.warning("discard_undone", topic=partition.topic, partition=partition.partition)

    def pending(self, topic: str = "") -> tuple[PendingDiscard, ...]:
        """The decisions on record, by topic and partition; `topic` empty = of all."""
        view = self._settings.view
        names = {one.topic_id: one.name for one in view.topics() if topic in ("", one.name)}
        found = [
            PendingDiscard(
                topic=names[record.partition.topic_id],
                record=record,
                due_in_ms=max(0, record.delay_ms - self._age_ms(record)),
                remote=remote_part(self._ledger.ledger(record.partition)),
            )
            for record in view.discards()
            if record.partition.topic_id in names
        ]
        return tuple(sorted(found, key=lambda one: (one.topic, one.record.partition.partition)))

    def _age_ms(self, record: DiscardRecord) -> int:
        return self._settings.view.certain_age_ms(
            record.key, monotonic_ms=self._clock.monotonic_ms(), now_ms=self._clock.now_ms()
        )

    def _plan(self, snapshot: PartitionSnapshot) -> DiscardPlan:
        partition = snapshot.led.topic_id_partition
        if not snapshot.topic.state.enabled:
            raise Invalid(f"topic {partition.topic} is not enabled: nothing is discarded")
        pending = self._settings.view.discard(snapshot.key)
        if pending is not None:
            raise Invalid(
                f"{partition}: {pending.by} has discarded it already (`rlm deletions list`)"
            )
        if snapshot.ledger.deletion_state is not None:
            raise Invalid(f"{partition}: an earlier deletion is not over yet: try again")
        if snapshot.frozen is None:
            raise Invalid(
                f"{partition} is not frozen: its remote part is in use. `rlm topics retention` and "
                f"`rlm topics disable {partition.topic} --delete` delete remote data that is"
            )
        return DiscardPlan(
            topic=partition.topic,
            partition=partition.partition,
            frozen=snapshot.frozen.reason,
            remote=remote_part(snapshot.ledger),
            own=own_part(
                snapshot.ledger,
                snapshot.lineage,
                log_start_offset=snapshot.watermarks.log_start_offset,
                log_end_offset=snapshot.log_end_offset,
                remote_log_start_offset=snapshot.remote_log_start_offset or 0,
            ),
            log_start_offset=snapshot.watermarks.log_start_offset,
            log_end_offset=snapshot.log_end_offset,
            delay_ms=self._delay_ms,
        )


def _goes_on(record: DiscardRecord, snapshot: PartitionSnapshot) -> bool:
    return is_same_log(record, snapshot.log.lineage, snapshot.log_end_offset)
