"""H9 after an unclean election: which transactions are aborted says the history that lives on.

Producer 7 writes [40, 60) in a transaction; epoch 0 ends at 60 in the leader's history, while a
dead log went on and decided the transaction at 150. Epoch 2 writes on from 60.
"""

from dataclasses import dataclass, field

import pytest

from kip405.batches import batch_headers
from kip405.errors import Unavailable
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction, aborted_for_fetch
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm.plans.fetch import ReadBounds
from rlm.reading.cursors import Following
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.history import LineageReader, RemoteHistory
from rlm.spans import NO_SPAN, SpanReference
from tests.builders.ledger import MemoryLedger, metadata
from tests.kip405.batch_builder import batch

PRODUCER = 7
DEAD_MARKER, LATER_MARKER = 150, 200
DEAD = AbortedTransaction(PRODUCER, 40, DEAD_MARKER)
LATER = AbortedTransaction(PRODUCER, 40, LATER_MARKER)
INSIDE = AbortedTransaction(8, 10, 30)
LINEAGE = Lineage((EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=2, start_offset=60)))
LOG_END = 500
OLD = metadata(1, 0, 100, {0: 0})  # counts up to 60
SHORT = metadata(2, 0, 50, {0: 0})  # counts whole, its leader's log did not
NEW = metadata(3, 50, 400, {0: 50, 2: 60})


@dataclass
class Reader:
    """Ten records a batch, transactional from 40 on; aborted lists by segment."""

    lists: dict[Uuid, tuple[AbortedTransaction, ...]]
    lists_read: list[Uuid] = field(default_factory=list)

    async def read(
        self,
        segment: RemoteLogSegmentMetadata,
        bounds: ReadBounds,
        *,
        read_committed: bool,
        following: Following | None = None,
        parent: SpanReference = NO_SPAN,
    ) -> RemoteRecords:
        records = b"".join(
            batch(base, 10, transactional=base >= 40, producer_id=PRODUCER if base >= 40 else -1)
            for base in range(bounds.offset, bounds.upper_offset, 10)
        )
        listed = self.lists.get(segment.segment_id.id, ())
        aborted = aborted_for_fetch(listed, bounds.offset, bounds.upper_offset)
        return RemoteRecords(
            records=(records[:70], records[70:]),
            size_bytes=len(records),
            next_offset=bounds.upper_offset,
            aborted=aborted if read_committed else (),
        )

    async def aborted_list(
        self, segment: RemoteLogSegmentMetadata
    ) -> tuple[AbortedTransaction, ...]:
        self.lists_read.append(segment.segment_id.id)
        return self.lists.get(segment.segment_id.id, ())


@dataclass
class ReadAlong:
    """Reads copied segments with the lists stored beside them."""

    segments: dict[RemoteLogSegmentMetadata, tuple[AbortedTransaction, ...]]
    lineage: Lineage = LINEAGE
    published_under: dict[RemoteLogSegmentMetadata, int] = field(default_factory=dict)

    async def aborted(
        self, offset: int, upper: int, *, read_committed: bool = True
    ) -> tuple[tuple[int, int], ...]:
        ledger = MemoryLedger()
        ledger.copied(*self.segments)
        for segment, epoch in self.published_under.items():
            ledger.write(segment, epoch=epoch, previous=1)
        lists = {one.segment_id.id: listed for one, listed in self.segments.items()}
        self.reader = Reader(lists)
        lineage_reader = LineageReader(self.reader, ledger)  # type: ignore[arg-type]  # the two methods it needs
        history = RemoteHistory(
            name="t-0",
            ledger=ledger.view,
            lineage=self.lineage,
            log_end_offset=LOG_END,
            trusted=True,
        )
        read = await lineage_reader.read(
            history,
            RemoteRead(
                topic_id=OLD.topic_id_partition.topic_id,
                partition=0,
                offset=offset,
                upper_offset=upper,
                max_bytes=1 << 30,
                at_least_one=True,
                read_committed=read_committed,
            ),
        )
        assert [header.base_offset for _, header in batch_headers(b"".join(read.records))][:1] == [
            offset
        ]
        return read.aborted


@pytest.mark.parametrize(
    ("dead", "alive", "aborted"),
    [
        ((DEAD,), (), ()),  # committed in the end: it would be dropped without a marker to stop at
        ((DEAD,), (LATER,), ((PRODUCER, 40),)),
        ((), (LATER,), ((PRODUCER, 40),)),  # committed once: it would be delivered
        ((INSIDE, DEAD), (), ((8, 10),)),
        ((INSIDE,), (LATER,), ((8, 10), (PRODUCER, 40))),
        ((), (), ()),
    ],
)
async def test_h09_a_cut_segment_has_the_aborted_transactions_of_the_history_that_lives_on(
    dead: tuple[AbortedTransaction, ...],
    alive: tuple[AbortedTransaction, ...],
    aborted: tuple[tuple[int, int], ...],
) -> None:
    read_along = ReadAlong({OLD: dead, NEW: alive})
    assert await read_along.aborted(0, 50) == aborted
    assert await read_along.aborted(0, 50, read_committed=False) == ()


async def test_h09_a_whole_segment_whose_marker_is_in_a_dead_history() -> None:
    assert await ReadAlong({SHORT: (DEAD,), NEW: ()}).aborted(0, 50) == ()
    assert await ReadAlong({SHORT: (DEAD,), NEW: (LATER,)}).aborted(0, 50) == ((PRODUCER, 40),)


async def test_h09_it_is_not_guessed_before_the_records_behind_are_copied() -> None:
    read_along = ReadAlong({OLD: (INSIDE, DEAD)})
    with pytest.raises(Unavailable, match="open at 60"):
        await read_along.aborted(0, 60)
    assert await read_along.aborted(0, 60, read_committed=False) == ()
    assert await read_along.aborted(0, 40) == ((8, 10),)  # nothing of a transaction is read
    with pytest.raises(Unavailable, match="open at 60"):
        await ReadAlong({SHORT: (DEAD,)}).aborted(0, 50)


async def test_h09_a_marker_of_a_later_leader_counts_after_a_clean_change() -> None:
    """Epoch 2 copied what epoch 0 wrote, and aborted it in its own log."""
    read_along = ReadAlong({SHORT: (LATER,)}, published_under={SHORT: 2})
    assert await read_along.aborted(0, 50) == ((PRODUCER, 40),)
    assert read_along.reader.lists_read == []


async def test_h09_lists_are_not_read_again_where_nothing_was_open() -> None:
    read_along = ReadAlong({SHORT: (INSIDE,), NEW: ()})
    assert await read_along.aborted(0, 50) == ((8, 10),)
    assert read_along.reader.lists_read == [SHORT.segment_id.id]


@pytest.mark.parametrize("alive", [(), (AbortedTransaction(PRODUCER, 40, 350),)])
async def test_h09_two_dead_histories_one_behind_the_other(
    alive: tuple[AbortedTransaction, ...],
) -> None:
    """Epoch 2 ended at 120 and decided at 200 what is open there; epoch 5 decides it again."""
    lineage = Lineage((*LINEAGE.entries, EpochEntry(epoch=5, start_offset=120)))
    last = metadata(4, 110, 450, {2: 110, 5: 120})
    for second in ((LATER,), ()):
        read_along = ReadAlong({OLD: (DEAD,), NEW: second, last: alive}, lineage)
        assert await read_along.aborted(0, 50) == tuple((one.producer_id, 40) for one in alive)
