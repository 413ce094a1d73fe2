"""Segments that reads found lost: objects missing or damaged under a FINISHED record (H11, H25).

The reading client gets an error, and the operator must learn of the loss too. An entry is removed
when the segment is read again, as after a restore from a backup.
"""

from collections.abc import Collection, Mapping

import structlog

from kip405.errors import Corrupt, NotFound
from kip405.ids import PartitionKey, Uuid

log = structlog.get_logger(__name__)
_MOST_PER_PARTITION = 100


class Losses:
    """By partition and segment id, why the segment cannot be read; bounded per partition."""

    def __init__(self) -> None:
        self._found: dict[PartitionKey, dict[Uuid, NotFound | Corrupt]] = {}

    def note(
        self,
        key: PartitionKey,
        segment_id: Uuid,
        error: NotFound | Corrupt,
        segments: Collection[Uuid],
    ) -> None:
        """Record that a read failed permanently; logged once. When the list is full, segments that
        are no longer in the ledger's `segments` are dropped.
        """
        known = self._found.setdefault(key, {})
        if segment_id in known:
            return
        if len(known) >= _MOST_PER_PARTITION:
            for given_up in [one for one in known if one not in segments]:
                del known[given_up]
        if len(known) >= _MOST_PER_PARTITION:
            return
        known[segment_id] = error
        log.error("segment_lost", segment=str(segment_id), error=str(error))

    def forget(self, key: PartitionKey, segment_id: Uuid) -> None:
        """The segment was read successfully: its objects are there again."""
        known = self._found.get(key)
        if known is not None and known.pop(segment_id, None) is not None:
            log.info("segment_found_again", segment=str(segment_id))
            if not known:
                del self._found[key]

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """Partitions with a segment that could not be read."""
        return tuple(self._found)

    def segments(self, key: PartitionKey) -> frozenset[Uuid]:
        """Segments of the partition that could not be read."""
        return frozenset(self._found.get(key, ()))

    def damaged(self, key: PartitionKey) -> Mapping[Uuid, str]:
        """Segments that failed a checksum, with what readers found. Their objects exist, so a check
        for existence proves nothing.
        """
        known = self._found.get(key, {})
        return {one: str(error) for one, error in known.items() if isinstance(error, Corrupt)}

    def alarms(self, key: PartitionKey, segments: Collection[Uuid]) -> tuple[str, ...]:
        """One line for each lost segment that the ledger still lists as readable."""
        known = self._found.get(key, {})
        return tuple(
            f"readers cannot have segment {segment_id}: {why}; restore its objects, or "
            "`rlm partition accept-loss`"
            for segment_id, why in known.items()
            if segment_id in segments
        )
