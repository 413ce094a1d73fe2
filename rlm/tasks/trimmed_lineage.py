"""What a trim takes from the broker's epoch file is published before (H8), if the leader knows it.

A ledger that lost records of copies lacks their epochs too. The log had them until it was trimmed
up to those copies, so a lineage with a gap there would contradict the copies once they are found
again (adopted from their manifests, or by `rlm ledger rebuild`), and hide them from readers for
good. So nothing is published before the gap is closed, or is on record as a hole.
"""

import structlog

from rlm.plans.history import record_of
from rlm.plans.trim import Held, NoTrim, TrimPlan
from rlm.remote_log.ports import Settings
from rlm.remote_log.snapshots import PartitionSnapshot, is_lineage_settled, unknown_epoch

log = structlog.get_logger()


class TrimmedLineage:
    """A step of the trim task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def is_settled(self, snapshot: PartitionSnapshot, plan: TrimPlan) -> bool:
        """Whether nothing needs to be published before the trim."""
        published = self._settings.view.history(snapshot.key)
        return is_lineage_settled(snapshot, published, plan.bound)

    def held(self, snapshot: PartitionSnapshot, plan: TrimPlan) -> Held | None:
        """Why the lineage cannot be published now; None = it can, or need not be."""
        if self.is_settled(snapshot, plan):
            return None
        unknown = unknown_epoch(snapshot, self._settings)
        if unknown is None:
            return None
        detail = f"no copy of what lies before epoch {unknown.epoch} at {unknown.start_offset}"
        return Held(reason=NoTrim.LINEAGE_UNKNOWN, detail=detail)

    async def publish(self, snapshot: PartitionSnapshot, plan: TrimPlan) -> None:
        """Publish first what only the epoch file knows: the trim truncates that file too (H8)."""
        if self.is_settled(snapshot, plan):
            return
        published = self._settings.view.history(snapshot.key)
        record = record_of(snapshot.ledger, snapshot.lineage, None, published)
        await self._settings.publish(record, plan.leader_epoch)
        log.info(
            "lineage_published",
            **snapshot.led.topic_partition._asdict(),
            bound=plan.bound,
            epochs=len(record.lineage.entries),
        )
