"""How long producer snapshots of closed segments have been missing, by looks at the disk.

Kafka writes a snapshot right after it rolls, but one that is missing for good (a log older than
snapshots at every roll, files that were lost) would stop the copies of its partition for ever. So
after a while a segment is copied without one. An empty snapshot instead would say that there were
no producers. Readers need none, and a broker that is given a download of the segment rebuilds the
state from the records.
"""

from kip405.ids import PartitionKey
from rlm.lanes.look import Look
from rlm.log_dir.partition_log import Closed


class SnapshotWaits:
    """`wait_ms` is copy.snapshot.wait.ms; all times are monotonic."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._since_ms: dict[PartitionKey, dict[int, int]] = {}

    def over(self, look: Look, now_ms: int) -> frozenset[int]:
        """Bases of the segments whose snapshot has been missing long enough."""
        before = self._since_ms.get(look.key, {})
        since = {
            one.base_offset: before.get(one.base_offset, now_ms)
            for one in look.log.segments
            if one.closed is Closed.SNAPSHOT_MISSING and one.size_bytes
        }
        self._since_ms[look.key] = since
        return frozenset(base for base, at in since.items() if now_ms - at >= self._wait_ms)

    def forget(self, key: PartitionKey) -> None:
        """The partition is led elsewhere now."""
        self._since_ms.pop(key, None)
