"""Writes the remote log start of a partition: the first one, and what every deletion of remote
records does before anything else.

The first one is where the broker's log begins, as long as nothing was copied. Later that offset may
be our own trim, and everything below it would be deleted (H1): where the record was lost, or cannot
be read, nobody makes up another one.

The start moves up only, for retention, for a DeleteRecords that our broker has answered, or for a
command (H1); objects below it may be deleted only after `LogStarts.raise_to` has returned (G4, H2).
Each raise has a line in the audit log before its record is written.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import RemoteLogSegmentState
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import CAUSE_ENABLE, SettingsRecord, StartRecord, TotalRetention
from rlmm.settings_view import SettingsView

log = structlog.get_logger(__name__)


class Settings(Protocol):
    """What raising a start needs of the settings topic (rlmm.settings.Settings)."""

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None: ...

    async def publish(self, record: SettingsRecord, leader_epoch: int) -> None: ...


class StartAudit(Protocol):
    """The audit log (rlm.tasks.audit_log.Audit); Unavailable: the line is not on disk."""

    async def start_raised(
        self,
        partition: TopicIdPartition,
        *,
        before: int,
        remote_log_start_offset: int,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        """The remote log start is about to move up."""
        ...


async def publish_first(
    settings: Settings,
    partition: TopicIdPartition,
    log_start_offset: int,
    *,
    leader_epoch: int,
    ledger: PartitionLedger,
    damage: str | None,
) -> None:
    """Write the broker's log start as the start of a partition that has never had one (H2).

    `damage`: of settings or ledger; both were read to a barrier. Segments of a topic without a
    settings record are no sign of a start: they arrived late, when the remote log had ended (H10).
    Unavailable: there may have been a start. Fenced: somebody else was faster.
    """
    if damage is not None:
        raise Unavailable(
            f"{partition} has no remote log start that can be read, and none is written while "
            f"there may be one: {damage}"
        )
    is_known = settings.view.topic(partition.key.topic_id) is not None
    copied = ledger.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED) if is_known else ()
    if copied:
        raise Unavailable(
            f"{partition} has {len(copied)} remote segments and no remote log start: the settings "
            "have lost the record; restore it from a backup, or `rlm topics adopt-log-start` sets "
            "it where the remote segments begin"
        )
    record = StartRecord(
        partition=partition.key,
        remote_log_start_offset=log_start_offset,
        cause=CAUSE_ENABLE,
        decided_epoch=leader_epoch,
    )
    await settings.publish(record, leader_epoch)


class LogStarts:
    """Raises starts, whoever has the reason."""

    def __init__(self, *, settings: Settings, audit: StartAudit, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._audit = audit
        self._barrier_deadline_ms = barrier_deadline_ms

    async def raise_to(
        self,
        partition: TopicIdPartition,
        remote_log_start_offset: int,
        *,
        leader_epoch: int,
        cause: str,
        check: Callable[[], Awaitable[object]],
        retention: TotalRetention | None = None,
    ) -> int:
        """Move the start up, durably and read back; returns the start that then holds.

        A start that is already as high stays. `leader_epoch` is that of the partition now. `check`
        raises unless the reason holds: asked once the settings are read to a barrier, and again
        right before the record is written. `retention`: in force where it is the cause. Invalid: no
        start was ever written, so the topic is not enabled. Fenced: a newer leader has written.
        Unavailable: not written, no barrier in time, or no audit log. OutcomeUnknown: call again.
        """
        await self._settings.barrier(self._barrier_deadline_ms)
        await check()
        known = self._settings.view.remote_log_start(partition.key)
        if known is None:
            raise Invalid(f"{partition} has no remote log start: the topic is not enabled")
        if known >= remote_log_start_offset:
            return known
        await self._audit.start_raised(
            partition,
            before=known,
            remote_log_start_offset=remote_log_start_offset,
            cause=cause,
            retention=retention,
        )
        await check()
        record = StartRecord(
            partition=partition.key,
            remote_log_start_offset=remote_log_start_offset,
            cause=cause,
            decided_epoch=leader_epoch,
        )
        try:
            await self._settings.publish(record, leader_epoch)
        except Fenced:
            known = self._settings.view.remote_log_start(partition.key)
            if known is None or known < remote_log_start_offset:
                raise
            return known  # another cause has raised it meanwhile
        log.info(
            "remote_log_start_raised",
            topic=partition.topic,
            partition=partition.partition,
            remote_log_start_offset=remote_log_start_offset,
            cause=cause,
        )
        return remote_log_start_offset
