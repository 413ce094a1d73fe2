"""Writes the remote log start of a partition: the first one, and what every deletion of remote
records does before anything else.

The first one is where the broker's log begins, as long as nothing was copied. Later that offset may
be our own trim, and everything below it would be deleted (H1): where the record was lost, or cannot
be read, nobody makes up another one. A topic without a settings record may be one whose record was
lost, too: its remote segments either arrived late, when its remote log had ended (H10), or are the
archive. That nobody but an operator knows (`Remains`).

The start moves up only, for retention, for a DeleteRecords that our broker has answered, or for a
command (H1); objects below it may be deleted only after `LogStarts.raise_to` has returned (G4, H2).
Each raise has a line in the audit log before its record is written.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import RemoteLogSegmentState
from rlmm.ledger import PartitionLedger, SegmentEntry
from rlmm.settings_records import CAUSE_ENABLE, SettingsRecord, StartRecord, TotalRetention
from rlmm.settings_view import SettingsView

log = structlog.get_logger(__name__)
_GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


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


class Remains(enum.Enum):
    """What an operator has decided about segments below the broker's log start of a topic without a
    settings record: nothing, that they end, or that the remote log begins with them.
    """

    UNDECIDED = "undecided"
    END = "end"
    KEEP = "keep"

    @classmethod
    def of(cls, *, keep: bool, end: bool) -> "Remains":
        """What the options of a call say; to keep counts more."""
        if keep:
            return cls.KEEP
        return cls.END if end else cls.UNDECIDED


def sign_of_start(view: SettingsView, ledger: PartitionLedger) -> str | None:
    """What shows that a partition of a known topic has had a remote log start: it is written before
    anything else (H2). None = nothing does.
    """
    if ledger.entries:
        return f"{len(ledger.entries)} remote segments"
    return _sign_in_settings(view, ledger)


def _sign_in_settings(view: SettingsView, ledger: PartitionLedger) -> str | None:
    trim = view.trim(ledger.key)
    if trim is not None:
        return f"a record of our own trim to {trim.bound}"
    return "a record of holes" if view.holes(ledger.key) else None


async def publish_first(
    settings: Settings,
    partition: TopicIdPartition,
    log_start_offset: int,
    *,
    leader_epoch: int,
    ledger: PartitionLedger,
    damage: str | None,
    remains: Remains = Remains.UNDECIDED,
) -> None:
    """Write the start of a partition that has never had one (H2), as `first_start` has it."""
    record = StartRecord(
        partition=partition.key,
        remote_log_start_offset=first_start(
            settings.view,
            partition,
            log_start_offset,
            ledger=ledger,
            damage=damage,
            remains=remains,
        ),
        cause=CAUSE_ENABLE,
        decided_epoch=leader_epoch,
    )
    await settings.publish(record, leader_epoch)


def first_start(
    view: SettingsView,
    partition: TopicIdPartition,
    log_start_offset: int,
    *,
    ledger: PartitionLedger,
    damage: str | None,
    remains: Remains,
) -> int:
    """The first remote log start of a partition: the broker's log start, or where the remains of a
    topic without a settings record begin.

    `damage`: of settings or ledger; both were read to a barrier. Unavailable: there may have been a
    start. Fenced: an operator must decide about remains, or somebody else was faster.
    """
    if damage is not None:
        raise Unavailable(
            f"{partition} has no remote log start that can be read, and none is written while "
            f"there may be one: {damage}"
        )
    if view.topic(partition.key.topic_id) is None:
        return _start_of_unknown(view, partition, log_start_offset, ledger, remains)
    sign = sign_of_start(view, ledger)
    if sign is not None:
        raise Unavailable(
            f"{partition} has {sign} and no remote log start: the settings have lost the "
            "record; restore it from a backup, or `rlm topics adopt-log-start` sets it where "
            "the remote segments begin"
        )
    return log_start_offset


def _start_of_unknown(
    view: SettingsView,
    partition: TopicIdPartition,
    log_start_offset: int,
    ledger: PartitionLedger,
    remains: Remains,
) -> int:
    """Of a topic without a settings record. Its remote log may have ended on purpose, or settings
    records were lost and the broker's log start is our own trim: the ledger does not show which.
    """
    if ledger.deletion is not None:
        raise Fenced(f"{partition}: its remote data is being deleted; enable it when that is done")
    found = _remains(ledger, log_start_offset)
    if found and remains is Remains.KEEP:
        return min(one.metadata.start_offset for one in found)
    sign = _sign_in_settings(view, ledger)
    if sign is not None:
        raise Fenced(
            f"{partition} has {sign}, and the settings have neither its remote log start nor a "
            "record of its topic: they have lost records, and the broker's log start "
            f"{log_start_offset} may be our own trim. Restore the records of the topic from a "
            f"backup of the settings{'; --keep-remote keeps what is remote' if found else ''}"
        )
    if found and remains is not Remains.END:
        size_bytes = sum(one.metadata.segment_size_bytes for one in found)
        first = min(one.metadata.start_offset for one in found)
        last = max(one.metadata.end_offset for one in found)
        raise Fenced(
            f"{partition} has {len(found)} remote segments ({size_bytes} bytes, offsets {first} to "
            f"{last}) that begin below the broker's log start {log_start_offset}, and the settings "
            "do not know the topic: its remote log has ended, or its settings were lost. "
            "--keep-remote keeps them: the remote log starts with the first of them; --yes ends "
            "what lies below the broker's log start, and it is deleted"
        )
    return log_start_offset


def _remains(ledger: PartitionLedger, log_start_offset: int) -> tuple[SegmentEntry, ...]:
    """What may have records below the broker's log start: an attempt may have its manifest (H6),
    and the record of a deletion may be a zombie's (H3).
    """
    return tuple(
        one
        for one in ledger.entries.values()
        if one.metadata.start_offset < log_start_offset and (one.disputed or one.state is not _GONE)
    )


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
        after another one right before the record is written, since the audit log may be on a slow
        disk: what was acknowledged before that barrier is known to it, such as another retention
        or a freeze. `retention`: in force where it is the cause. Invalid: no
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
        await self._settings.barrier(self._barrier_deadline_ms)
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
