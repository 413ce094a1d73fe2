"""The audit log: one JSON line for each segment that was deleted, each raise of a log start, each
partition whose remote part was given up, each retention that an operator accepted, and each command
that changes something.

A file of its own, so that it can be kept longer than the service's log. Lines are appended and
synced to disk before the ledger forgets a segment and before a start is raised: a deletion whose
line cannot be written is repeated, so a segment may have two lines, but never none. It has no
contents of records and no secrets. Rotate it by renaming it: it is opened for each batch.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kip405.errors import Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import Clock
from rlm.remote_log.log_starts import StartAudit
from rlmm.settings_records import TopicRecord, TotalRetention
from rsm_plugins.threads import Threads


class Audit(StartAudit, Protocol):
    """What tasks record; every call returns once its lines are on disk. Unavailable: they are not,
    so the caller must not go on.
    """

    async def segments_deleted(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        """Objects of these segments are gone. `retention`: in force where it is the cause."""
        ...

    async def partition_discarded(
        self,
        partition: TopicIdPartition,
        *,
        by: str,
        before: int | None,
        remote_log_start_offset: int,
    ) -> None:
        """All that was remote of the partition is gone, by command. `before`: its remote log start
        until now, None = it had none. It may come down, as the offsets may begin again.
        """
        ...


class AuditLog:
    """Implements `Audit` by a file; one writer at a time."""

    def __init__(self, path: Path, *, threads: Threads, clock: Clock, node_id: int) -> None:
        self._path = path
        self._threads = threads
        self._clock = clock
        self._node_id = node_id

    async def segments_deleted(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        """See `Audit`."""
        await self._write(
            self._line(
                "segment_deleted",
                one.topic_id_partition,
                cause,
                retention,
                segment_id=str(one.segment_id.id),
                start_offset=one.start_offset,
                end_offset=one.end_offset,
                size_bytes=one.segment_size_bytes,
                max_timestamp_ms=one.max_timestamp_ms,
            )
            for one in segments
        )

    async def start_raised(
        self,
        partition: TopicIdPartition,
        *,
        before: int,
        remote_log_start_offset: int,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        """See `Audit`."""
        line = self._line(
            "remote_log_start_raised",
            partition,
            cause,
            retention,
            before=before,
            remote_log_start_offset=remote_log_start_offset,
        )
        await self._write([line])

    async def retention_accepted(
        self, topic: TopicRecord, *, by: str, retention: TotalRetention
    ) -> None:
        """What somebody has set on a topic is about to become its total retention."""
        line = {
            "time_ms": self._clock.now_ms(),
            "event": "retention_accepted",
            "node_id": self._node_id,
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "by": by,
            "retention_ms_before": topic.retention_ms,
            "retention_bytes_before": topic.retention_bytes,
            **_limits(retention),
        }
        await self._write([line])

    async def partition_discarded(
        self,
        partition: TopicIdPartition,
        *,
        by: str,
        before: int | None,
        remote_log_start_offset: int,
    ) -> None:
        """See `Audit`."""
        line = self._line(
            "partition_discarded",
            partition,
            f"command: {by}",
            None,
            before=before,
            remote_log_start_offset=remote_log_start_offset,
        )
        await self._write([line])

    async def command_given(
        self,
        *,
        command: str,
        by: str,
        is_proven: bool,
        address: str,
        request: Mapping[str, Any],
    ) -> None:
        """A command is about to be carried out. `is_proven`: the caller has proven to be `by`."""
        line = {
            "time_ms": self._clock.now_ms(),
            "event": "command",
            "node_id": self._node_id,
            "command": command,
            "by": by,
            "by_is_proven": is_proven,
            "from": address,
            "request": request,
        }
        await self._write([line])

    def _line(
        self,
        event: str,
        partition: TopicIdPartition,
        cause: str,
        retention: TotalRetention | None,
        **fields: Any,
    ) -> Mapping[str, Any]:
        return {
            "time_ms": self._clock.now_ms(),
            "event": event,
            "node_id": self._node_id,
            "cause": cause,
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            **fields,
            **(_limits(retention) if retention is not None else {}),
        }

    async def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            await self._threads.run(_append, self._path, data)
        except OSError as error:
            raise Unavailable(
                f"the audit log {self._path} cannot be written, so nothing more is deleted: {error}"
            ) from error


def _limits(retention: TotalRetention) -> Mapping[str, int]:
    return {"retention_ms": retention.retention_ms, "retention_bytes": retention.retention_bytes}


def _append(path: Path, data: bytes) -> None:
    """One write, so that lines of several writers never mix; on a line of its own, whatever an
    earlier write left that a full disk cut off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        size_bytes = os.fstat(file).st_size
        if size_bytes and os.pread(file, 1, size_bytes - 1) != b"\n":
            data = b"\n" + data
        if os.write(file, data) != len(data):
            raise OSError(f"only a part of {len(data)} bytes was written")
        os.fsync(file)
    finally:
        os.close(file)
