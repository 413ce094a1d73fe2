"""Raises the remote log start of a partition: what every deletion of remote records does first.

The start moves up only, for retention, for a DeleteRecords that our broker has answered, or for a
command (H1); objects below it may be deleted only after `raise_start` has returned (G4, H2).
"""

from typing import Protocol

from kip405.errors import Fenced, Invalid
from kip405.ids import PartitionKey
from rlmm.settings_records import SettingsRecord, StartRecord
from rlmm.settings_view import SettingsView


class Settings(Protocol):
    """What raising a start needs of the settings topic (rlmm.settings.Settings)."""

    @property
    def view(self) -> SettingsView: ...

    async def barrier(self, deadline_ms: int) -> None: ...

    async def publish(self, record: SettingsRecord, leader_epoch: int) -> None: ...


async def raise_start(
    settings: Settings,
    partition: PartitionKey,
    remote_log_start_offset: int,
    *,
    leader_epoch: int,
    cause: str,
    barrier_deadline_ms: int,
) -> int:
    """Move the start up, durably and read back; returns the start that then holds.

    A start that is already as high stays. `leader_epoch` is that of the partition now. Invalid:
    none was ever written, so the topic is not enabled. Fenced: a newer leader has written.
    Unavailable: not written, or no barrier in time. OutcomeUnknown: call again.
    """
    await settings.barrier(barrier_deadline_ms)
    known = settings.view.remote_log_start(partition)
    if known is None:
        raise Invalid(f"partition {partition} has no remote log start: the topic is not enabled")
    if known >= remote_log_start_offset:
        return known
    record = StartRecord(
        partition=partition,
        remote_log_start_offset=remote_log_start_offset,
        cause=cause,
        decided_epoch=leader_epoch,
    )
    try:
        await settings.publish(record, leader_epoch)
    except Fenced:
        known = settings.view.remote_log_start(partition)
        if known is None or known < remote_log_start_offset:
            raise
        return known  # another cause has raised it meanwhile
    return remote_log_start_offset
