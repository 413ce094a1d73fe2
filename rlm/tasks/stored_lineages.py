"""Reads what the newest segment of a partition knows of the whole history below its end (H8).

With every segment the merged lineage of its leader is stored, as far as the segment's end. That of
the segment of the highest epoch shows epochs that no copy has any more, or never had: without it a
copy that an unclean election has made wrong seems to be of the history. Nothing is changed here.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType, SegmentReader, StoreAdmin
from kip405.crc import crc32c
from kip405.errors import Corrupt, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.indexes import IndexesObject
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.clock import next_turn
from rlmm.ledger import PartitionLedger

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_READS_AT_ONCE: Final = 16
_MOST_TRIED: Final = 3
"""Segments of one partition whose indexes are read, where those of newer ones are damaged."""


class ReadableStore(StoreAdmin, SegmentReader, Protocol):
    """What is read of a store: its objects by name, its manifests, and what the segments have."""


class StoredLineages:
    """Remembers by which segment a lineage is known, and reads only those of newer segments."""

    def __init__(self, cluster_id: str, report: Callable[[str], None]) -> None:
        """`report` gets what is wrong with each object that cannot be used."""
        self._cluster_id = cluster_id
        self._report = report
        self._known: dict[PartitionKey, tuple[Uuid, Lineage | None]] = {}
        self._of_ledger: dict[PartitionKey, tuple[PartitionLedger, Lineage | None]] = {}
        self.unreadable = 0
        """Partitions of which no such object could be read in the last call, though their store
        answers: they may be read later.
        """

    async def of(
        self, ledgers: Iterable[PartitionLedger], stores: Mapping[Uuid, ReadableStore]
    ) -> dict[PartitionKey, Lineage | None]:
        """For each partition the lineage stored with the newest segment whose indexes can be used;
        None where there is none, and where all copies are of one leader epoch. Unavailable: a store
        is away.
        """
        self.unreadable = 0
        found: dict[PartitionKey, Lineage | None] = {}
        everything = tuple(ledgers)
        for at in range(0, len(everything), _READS_AT_ONCE):
            some = everything[at : at + _READS_AT_ONCE]
            read = await asyncio.gather(*(self._of_one(one, stores) for one in some))
            found |= {ledger.key: one for ledger, one in zip(some, read, strict=True)}
        self._known = {key: one for key, one in self._known.items() if key in found}
        self._of_ledger = {key: one for key, one in self._of_ledger.items() if key in found}
        return found

    async def _of_one(
        self, ledger: PartitionLedger, stores: Mapping[Uuid, ReadableStore]
    ) -> Lineage | None:
        done = self._of_ledger.get(ledger.key)
        if done is not None and done[0] is ledger:
            return done[1]
        await next_turn()
        candidates = list(_newest_first(ledger))
        if not candidates:
            self._of_ledger[ledger.key] = ledger, None
            return None
        newest = candidates[0].segment_id.id
        known = self._known.get(ledger.key)
        if known is not None and known[0] == newest:
            self._of_ledger[ledger.key] = ledger, known[1]
            return known[1]
        found, is_certain = await self._first_usable(candidates, stores)
        if is_certain:
            self._known[ledger.key] = newest, found
            self._of_ledger[ledger.key] = ledger, found
        else:
            self.unreadable += 1
        return found

    async def _first_usable(
        self, candidates: list[RemoteLogSegmentMetadata], stores: Mapping[Uuid, ReadableStore]
    ) -> tuple[Lineage | None, bool]:
        """The lineage, and whether it needs not be read again. All of one epoch have the same."""
        is_certain = True
        for segment in candidates[:_MOST_TRIED]:
            store = stores[segment.custom().store_id]
            try:
                return await self._read(segment, store), True
            except RemoteStorageError as error:
                if error.retriable:
                    await store.read_identity()  # if the store is away, that is the error
                    is_certain = False
                self._report(str(error))
        return None, is_certain

    async def _read(self, segment: RemoteLogSegmentMetadata, store: ReadableStore) -> Lineage:
        """Corrupt: they are not the indexes that the manifest names, or have no lineage of it."""
        data = await store.fetch_indexes(segment.locator(self._cluster_id))
        if crc32c(data) != segment.custom().indexes_crc32c:
            raise Corrupt(f"indexes of segment {segment.segment_id} have another checksum")
        section = IndexesObject.parse(data).section(IndexType.LEADER_EPOCH)
        if section is None:
            raise Corrupt(f"indexes of segment {segment.segment_id} have no LEADER_EPOCH section")
        stored = parse_leader_epochs(bytes(section))
        if stored.latest_epoch != _last_epoch(segment):
            raise Corrupt(f"the stored history of {segment.segment_id} ends in another epoch")
        return stored


def has_several_epochs(segments: Iterable[RemoteLogSegmentMetadata]) -> bool:
    """Whether copies could contradict each other, or a history that is stored with one of them."""
    return len({entry.epoch for one in segments for entry in one.segment_leader_epochs}) > 1


def _newest_first(ledger: PartitionLedger) -> Iterator[RemoteLogSegmentMetadata]:
    """The segments that end in the highest leader epoch, the one that ends last first; none if
    that is the only epoch.
    """
    found = [entry.metadata for entry in ledger.in_state(_FINISHED)]
    if has_several_epochs(found):
        highest = max(map(_last_epoch, found))
        last = [one for one in found if _last_epoch(one) == highest]
        yield from sorted(last, key=lambda one: one.end_offset, reverse=True)


def _last_epoch(segment: RemoteLogSegmentMetadata) -> int:
    return segment.segment_leader_epochs[-1].epoch
