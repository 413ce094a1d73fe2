"""The ledger as simply as it can be said: dictionaries of records, every answer a loop over all.

What `rlmm.replay` and `rlmm.ledger` keep packed and in shared chunks is compared with this.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass

from kip405.ids import Uuid
from kip405.lineage import Lineage, remote_lineage, usable_end
from kip405.segments import LAWFUL_SEGMENT_CHANGES, RemoteLogSegmentMetadata
from rlmm.ledger import Hole, UsableSegment
from rlmm.records import NO_PREVIOUS, LedgerRecord
from rlmm.replay import TOMBSTONE_MEMORY_MS
from tests.rlmm.builders import DELETED, FINISHED

Range = tuple[int, int]


@dataclass
class Known:
    """What is known of one key."""

    newest: LedgerRecord
    lawful: LedgerRecord | None
    certain: bool
    why: str


class ModelState:
    """One reader of one partition; the rules are in the docstring of rlmm.replay."""

    def __init__(self) -> None:
        self.keys: dict[Uuid, Known] = {}
        self.newest_epoch = -1
        self.next_offset = 0
        self.since = 0
        self.absence_is_known = True
        self.tombstones: deque[LedgerRecord] = deque()

    def skip(self, offset: int) -> None:
        self.next_offset = self.since = offset + 1
        self.absence_is_known = False

    def apply(self, record: LedgerRecord) -> None:
        if record.offset > self.next_offset:
            self.since, self.absence_is_known = record.offset, False
        self.next_offset = record.offset + 1
        self._take(record)
        self.newest_epoch = max(self.newest_epoch, record.headers.leader_epoch)
        while (
            self.tombstones
            and self.tombstones[0].timestamp_ms < record.timestamp_ms - TOMBSTONE_MEMORY_MS
        ):
            old = self.tombstones.popleft()
            known = self.keys.get(_id(old))
            if known is not None and known.newest is old and not known.why:
                del self.keys[_id(old)]

    def _take(self, record: LedgerRecord) -> None:
        known, why, certain = self.keys.get(_id(record)), "", False
        epoch = record.headers.leader_epoch
        if known is None:
            certain = self.absence_is_known
        elif known.newest.offset < self.since:
            known = None
        else:
            certain = known.certain
        before = known.newest.headers.leader_epoch if known else self.newest_epoch
        if epoch < self.newest_epoch and (known or certain):
            why = f"leader epoch {epoch} is older than {self.newest_epoch}"
        elif certain and self.since and epoch > before:
            certain = False
        elif certain:
            why = _objection(known, record)
        lawful = record if not why else known.lawful if known else None
        self.keys[_id(record)] = Known(record, lawful, certain, why)
        if record.metadata is None and not why:
            if certain and self.absence_is_known:
                del self.keys[_id(record)]
            else:
                self.tombstones.append(record)

    @property
    def records(self) -> dict[Uuid, LedgerRecord]:
        return {key: known.newest for key, known in self.keys.items() if known.newest.metadata}

    @property
    def disputes(self) -> dict[Uuid, tuple[LedgerRecord, LedgerRecord | None, str]]:
        return {
            key: (
                known.newest,
                known.lawful if known.lawful and known.lawful.metadata else None,
                known.why,
            )
            for key, known in self.keys.items()
            if known.why
        }

    @property
    def readable(self) -> list[tuple[RemoteLogSegmentMetadata, bool]]:
        found = [
            (one.metadata, key in self.disputes)
            for key, one in self.records.items()
            if one.metadata and one.state is FINISHED
        ]
        for newest, lawful, _ in self.disputes.values():
            if (
                lawful
                and lawful.metadata
                and lawful.state is FINISHED
                and newest.state is not FINISHED
            ):
                found.append((lawful.metadata, True))
        return found

    @property
    def remote_lineage(self) -> Lineage:
        return remote_lineage(metadata for metadata, _ in self.readable)

    def usable(self, lineage: Lineage, log_end: int, start: int = 0) -> list[UsableSegment]:
        found = [
            UsableSegment(metadata=one, next_offset=usable_end(one, lineage), disputed=disputed)
            for one, disputed in self.readable
        ]
        found.sort(
            key=lambda one: (one.metadata.start_offset, one.next_offset, one.metadata.segment_id.id)
        )
        return [
            one
            for one in found
            if one.next_offset > one.metadata.start_offset and start < one.next_offset <= log_end
        ]

    def contiguous_end(
        self,
        lineage: Lineage,
        log_end: int,
        start: int,
        holes: Iterable[Hole],
        without: Container[Uuid],
    ) -> int:
        pieces = [
            (one.metadata.start_offset, one.next_offset)
            for one in self.usable(lineage, log_end, start)
            if not one.disputed and one.metadata.segment_id.id not in without
        ]
        cursor = start
        for piece_start, piece_end in sorted([*pieces, *((one.start, one.end) for one in holes)]):
            if piece_start > cursor:
                break
            cursor = max(cursor, piece_end)
        return cursor

    def highest_end(self, lineage: Lineage, log_end: int, disputed: bool) -> int | None:
        ends = [
            one.next_offset for one in self.usable(lineage, log_end) if disputed or not one.disputed
        ]
        return max(ends, default=None)

    def lookup(self, lineage: Lineage, log_end: int, offset: int) -> UsableSegment | None:
        found = self.usable(lineage, log_end)
        holding = [one for one in found if one.metadata.start_offset <= offset < one.next_offset]
        if holding:
            return max(reversed(holding), key=lambda one: (not one.disputed, one.next_offset))
        return next((one for one in found if one.metadata.start_offset > offset), None)


def _id(record: LedgerRecord) -> Uuid:
    assert record.key.segment_id is not None
    return record.key.segment_id


def _objection(known: Known | None, record: LedgerRecord) -> str:
    expected = record.headers.expected_previous
    newest = known.newest if known else None
    lawful = known.lawful if known else None
    in_table = (
        lawful is not None and lawful.state is DELETED
        if record.state is None
        else record.state in LAWFUL_SEGMENT_CHANGES[lawful.state if lawful else None]
    )
    if expected == _state_id(lawful) and in_table:
        return ""
    if expected != _state_id(newest):
        return f"expected previous state {expected}, which was {_state_id(newest)}"
    is_newer = newest and record.headers.leader_epoch > newest.headers.leader_epoch
    back_to_lawful = record.state_id == _state_id(lawful)
    if record.state is FINISHED or (known is None and record.state is None):
        return ""
    if known is not None and (is_newer or back_to_lawful):
        return ""
    return f"no change from {_state_id(newest)} to {record.state_id} is allowed"


def _state_id(record: LedgerRecord | None) -> int:
    return record.state_id if record else NO_PREVIOUS
