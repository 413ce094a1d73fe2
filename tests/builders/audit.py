"""An audit log in memory."""

from collections.abc import Callable, Sequence

from kip405.ids import TopicIdPartition
from kip405.segments import RemoteLogSegmentMetadata
from rlmm.settings_records import TopicRecord, TotalRetention


class MemoryAudit:
    """Implements `Audit`. `before_write` is called first: it may raise, like a full disk."""

    def __init__(self) -> None:
        self.deleted: list[RemoteLogSegmentMetadata] = []
        self.causes: list[str] = []
        self.starts: list[int] = []
        self.start_causes: list[str] = []
        self.discarded: list[tuple[str, int | None, int]] = []
        self.start_retentions: list[TotalRetention | None] = []
        self.accepted: list[tuple[str, TotalRetention]] = []
        """Who accepted which retention."""
        self.before_write: Callable[[], None] = lambda: None

    async def segments_deleted(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        self.before_write()
        self.deleted += segments
        self.causes += [cause] * len(segments)

    async def start_raised(
        self,
        partition: TopicIdPartition,
        *,
        before: int,
        remote_log_start_offset: int,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        self.before_write()
        self.starts.append(remote_log_start_offset)
        self.start_causes.append(cause)
        self.start_retentions.append(retention)

    async def retention_accepted(
        self, topic: TopicRecord, *, by: str, retention: TotalRetention
    ) -> None:
        self.before_write()
        self.accepted.append((by, retention))

    async def partition_discarded(
        self,
        partition: TopicIdPartition,
        *,
        by: str,
        before: int | None,
        remote_log_start_offset: int,
    ) -> None:
        self.before_write()
        self.discarded.append((by, before, remote_log_start_offset))


async def nothing_to_check() -> None:
    """The check of a raise whose reason holds in any case."""
