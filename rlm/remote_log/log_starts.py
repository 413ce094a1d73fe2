"""Raises the remote log start of a partition: what every deletion of remote records does first.

The start moves up only, for retention, for a DeleteRecords that our broker has answered, or for a
command (H1); objects below it may be deleted only after `LogStarts.raise_to` has returned (G4, H2).
Each raise has a line in the audit log before its record is written.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid
from kip405.ids import TopicIdPartition
from rlmm.settings_records import SettingsRecord, StartRecord, TotalRetention
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
