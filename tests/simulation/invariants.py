"""What must hold at every moment, whatever the events (H31, H34), checked by contents alone.

Nothing here uses the product's lineage, plans or views: a copy counts if the ledger's newest record
of it says FINISHED and its stored bytes are the broker's own batches.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, SegmentLocator
from rlmm.log_reader import TailRecord
from rlmm.records import LaterRecord, LedgerRecord, PartitionDeleteRecord, decode_record
from rlmm.replay import LedgerState
from rsm_plugins.layout.keys import DATA_OBJECTS, ObjectKind, ParsedName, object_names, parse_name
from tests.builders.log_dir import CLUSTER_ID
from tests.simulation.model_broker import BATCH_BYTES, RECORDS, Batch, content_of
from tests.simulation.model_cluster import Broker
from tests.simulation.model_log import ModelTopics, compacted
from tests.simulation.model_service import LEDGER
from tests.simulation.model_store import ModelStore

_CUTS = 6
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Broken(AssertionError):
    """An invariant does not hold."""


@lru_cache(4_096)
def decoded(record: TailRecord) -> LedgerRecord | PartitionDeleteRecord:
    """A record of the ledger as the product reads it."""
    found = decode_record(
        key=record.key,
        value=record.value,
        headers=record.headers,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
    )
    assert not isinstance(found, LaterRecord)
    return found


def of_segments(records: Iterable[TailRecord]) -> Iterator[LedgerRecord]:
    """The records of segments, without those of the deletion of whole partitions."""
    return (one for one in map(decoded, records) if isinstance(one, LedgerRecord))


def newest_by_segment(records: Sequence[TailRecord]) -> dict[bytes, LedgerRecord]:
    """The newest record of each segment's key that is no tombstone."""
    newest: dict[bytes, LedgerRecord] = {}
    for record in records:
        assert record.key is not None
        one = decoded(record)
        if one.metadata is None:
            newest.pop(record.key, None)
        elif isinstance(one, LedgerRecord):
            newest[record.key] = one
    return newest


@dataclass(slots=True)
class Watch:
    """The invariants over one world. `lost_s`: when the store itself lost an object."""

    topics: ModelTopics
    store: ModelStore
    trims: int = 0
    _newest: Mapping[bytes, LedgerRecord] = field(default_factory=dict)
    _newest_of: int = -1

    def finished(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments that are FINISHED in the log as it is now."""
        return (one for one in self.segments() if one.state is _FINISHED)

    def segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments with a record in the log as it is now."""
        for one in self.newest().values():
            if one.metadata is not None:
                yield one.metadata

    def newest(self) -> Mapping[bytes, LedgerRecord]:
        """The newest record of each segment in the log as it is now."""
        if self._newest_of != self.topics.changes:
            self._newest = newest_by_segment(self.topics.records.get(LEDGER, []))
            self._newest_of = self.topics.changes
        return self._newest

    def contents_of(self, segment: RemoteLogSegmentMetadata) -> Mapping[int, int]:
        """Content by base offset, of a segment that is whole in the store; else nothing."""
        objects, hidden = self.store.objects, self.store.hidden
        if any(name not in objects and name not in hidden for name in self.names_of(segment)):
            return {}
        name = next(one for one in self.names_of(segment) if one.endswith(ObjectKind.LOG.value))
        return _contents(objects.get(name) or hidden[name])

    def copied(self, *, without: Uuid | None = None) -> dict[int, set[int]]:
        """Contents that the remote tier has at each base offset, whole and FINISHED. What was
        FINISHED before the ledger lost the record counts: its manifest brings it back (H6).
        """
        found: dict[int, set[int]] = {}
        lost = (one.metadata for one in of_segments(self.topics.lost_records))
        forgotten = (one for one in lost if one is not None and one.state is _FINISHED)
        for segment in chain(self.finished(), forgotten):
            if segment.segment_id.id == without:
                continue
            for base, content in self.contents_of(segment).items():
                found.setdefault(base, set()).add(content)
        return found

    def check_trim(self, broker: Broker, offset: int, remote_start: int) -> None:
        """Right before a DeleteRecords: what goes is in the remote tier, as this broker has it."""
        self.trims += 1
        if offset <= remote_start:
            return
        replica, copied = broker.replica, self.copied()
        first = max(replica.log_start, remote_start) // RECORDS * RECORDS
        for one in replica.batches(first, -(-offset // RECORDS) * RECORDS):
            if one.content not in copied.get(one.base_offset, ()):
                raise Broken(
                    f"early trim: broker {broker.node_id} deletes {replica.log_start}..{offset}, "
                    f"and no finished copy has its batch at {one.base_offset}"
                )

    def names_of(self, segment: RemoteLogSegmentMetadata) -> Sequence[str]:
        """The names of a segment's objects."""
        return _names(segment.locator(CLUSTER_ID))

    def whole(self, name: str) -> Uuid | None:
        """The segment of an object, where all of its objects are there."""
        one = parsed(name)
        stem = name.removesuffix(one.kind.value)
        names = [stem + kind.value for kind in (*DATA_OBJECTS[one.layout], ObjectKind.MANIFEST)]
        return one.segment_id if all(other in self.store.objects for other in names) else None

    def check_deletion(
        self, name: str, history: Sequence[Batch], log_start: int, remote_start: int
    ) -> None:
        """Right before an object goes: the log, which begins at `log_start`, has its records, or
        another whole copy does. `history`: of that log, with what lies below its start. Where the
        log has other records instead, and the object was of a finished segment, a whole copy has
        those (H8).
        """
        segment_id = parsed(name).segment_id
        log_name = next(
            (
                other
                for other in self.store.objects
                if other.endswith(ObjectKind.LOG.value) and parsed(other).segment_id == segment_id
            ),
            None,
        )
        if log_name is None:
            return
        others = self.copied(without=segment_id)
        end = len(history) * RECORDS
        was_finished = self._was_finished(segment_id)
        for base, content in _contents(self.store.objects[log_name]).items():
            is_history = base < end and history[base // RECORDS].content == content
            is_wanted = is_history and remote_start < base + RECORDS <= log_start
            if is_wanted and content not in others.get(base, ()):
                raise Broken(f"early deletion: {name} has the only copy of the batch at {base}")
            is_dead = not is_history and was_finished and remote_start < base + RECORDS
            if is_dead and base not in others:
                raise Broken(f"early deletion: nothing has replaced {name} at {base}")

    def _was_finished(self, segment_id: Uuid) -> bool:
        """Whether a segment was finished when its deletion began."""
        state = None
        for one in of_segments(self.topics.written.get(LEDGER, [])):
            if one.key.segment_id != segment_id or one.metadata is None:
                continue
            if one.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                return state is _FINISHED
            state = one.state
        return False

    def check_compaction(self, chance: random.Random) -> None:
        """replay(compact(log)) == replay(log), at some cuts of all that was ever written."""
        log = self.topics.written.get(LEDGER, [])
        whole = _states(log)
        for _ in range(_CUTS if log else 0):
            cut = chance.randint(0, log[-1].offset)
            if _states(compacted(log, cut, chance.randint(0, cut))) != whole:
                raise Broken(f"replaying the ledger compacted up to {cut} gives another state")


@lru_cache(4_096)
def parsed(name: str) -> ParsedName:
    """The fields of an object's name."""
    return parse_name(name)


@lru_cache(1_024)
def _names(locator: SegmentLocator) -> Sequence[str]:
    return tuple(object_names(locator).values())


@lru_cache(1_024)
def _contents(log: bytes) -> Mapping[int, int]:
    """Content by base offset of a stored log object."""
    data = memoryview(log)
    batches = (content_of(data[at:]) for at in range(0, len(data), BATCH_BYTES))
    return {base: content for base, _, content in batches}


def replayed(records: Sequence[TailRecord]) -> LedgerState:
    """What a reader of these records knows."""
    state = LedgerState()
    for record in records:
        one = decoded(record)
        if isinstance(one, LedgerRecord):
            state.apply(one)
        else:
            state.apply_deletion(one)
    return state


def _states(records: Sequence[TailRecord]) -> dict[tuple[PartitionKey, Uuid | None], object]:
    """The state of every segment, and how far the deletions of whole partitions have come."""
    found: dict[tuple[PartitionKey, Uuid | None], object] = {}
    for key, partition in replayed(records).partitions.items():
        found |= {(key, segment): one.metadata for segment, one in partition.records.items()}
        if partition.deletion is not None:
            found[key, None] = partition.deletion.metadata
    return found
