"""Which remote log starts the manifests have that an attached reader serves, or has served.

Starts only rise, and a manifest has that of the time when it was written. So the highest one
counts, also after its segment has gone (H2). Only where a partition was discarded (H4), what is
copied after that may begin below: then all that has the former start goes, and what is left is of
later leaders. The listings of a reader may have both at first.
"""

from collections.abc import Collection

from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.ledger_rebuild import StoredSegment


class RemoteStarts:
    """By partition, and by the last leader epoch of the segments whose manifests have them."""

    def __init__(self) -> None:
        self._starts: dict[PartitionKey, dict[int, int]] = {}

    def of(self, key: PartitionKey) -> int:
        """The highest one, 0 = no manifest has any."""
        return max(self._starts.get(key, {}).values(), default=0)

    def note(self, key: PartitionKey, segment: StoredSegment) -> None:
        """One that a higher epoch has, too, is not kept."""
        start, known = segment.remote_log_start_offset, self._starts.get(key, {})
        epoch = segment.metadata.segment_leader_epochs[-1].epoch
        if any(other >= epoch and known[other] >= start for other in known) or start == 0:
            return
        higher = {other: at for other, at in known.items() if other > epoch or at > start}
        self._starts[key] = higher | {epoch: start}

    def ended(self, key: PartitionKey) -> None:
        """All that was served has gone: the partition was discarded, or all has ended."""
        self._starts.pop(key, None)

    def left(self, key: PartitionKey, segments: Collection[RemoteLogSegmentMetadata]) -> None:
        """Some have gone, and these are left. Where one lies below the start, those that earlier
        leaders than all of theirs have decided are of a log that was discarded.
        """
        start = self.of(key)
        if any(one.next_offset <= start for one in segments):
            first = min(one.segment_leader_epochs[0].epoch for one in segments)
            known = self._starts[key]
            self._starts[key] = {epoch: at for epoch, at in known.items() if epoch >= first}
