"""The audit log of all services: what is deleted of a dead history is counted as an event."""

from collections.abc import Callable, Sequence

from kip405.segments import RemoteLogSegmentMetadata
from rlm.tasks.unreferenced import CAUSE_UNREFERENCED
from rlmm.settings_records import TotalRetention
from tests.builders.audit import MemoryAudit


class Audit(MemoryAudit):
    """`happened(event, detail)` is called for each unreferenced segment whose objects are gone."""

    def __init__(self, happened: Callable[[str, str], None]) -> None:
        super().__init__()
        self._happened = happened

    async def segments_deleted(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        cause: str,
        retention: TotalRetention | None = None,
    ) -> None:
        await super().segments_deleted(segments, cause=cause, retention=retention)
        for one in segments if cause == CAUSE_UNREFERENCED else ():
            self._happened("unreferenced deleted", f"{one.segment_id.id} at {one.start_offset}")
