"""Readers of stores alone that list them while services copy on pass over no segment (H4, H15).

The listings here have pages: the names below an offset, then something happens, then the others.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kip405.contracts import StoredObject
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicIdPartition, Uuid
from rlm.download.sources import StoreSource
from rlm.remote_log.attached import (
    NOBODY,
    AttachedLedger,
    AttachedLog,
    AttachedSettings,
    view_of_records,
)
from rlm.remote_log.remote_only import RemoteView
from rlm.remote_log.remote_state import RemotePartitionState
from rlm.tasks.attachment import Attachment, Choices
from rlm.tasks.settled_listing import MOST_ADDED, UNSETTLED, Records, above_gaps, without_end
from rlmm.settings_records import CAUSE_COMMAND, ClusterRecord, StartRecord
from rsm_plugins.layout.keys import parse_name
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import log_of
from tests.rlm.api.attached_site import RECORD
from tests.rlm.download.stored import put

OTHER_ID = Uuid(b"\x52" * 16)
Page = tuple[int, Callable[[], object]]
NOTHING: Page = (0, list)


class Paged(MemoryStore):
    """Each listing has one of the `pages`, as long as there are any: what happens after the names
    of the segments below an offset.
    """

    def __init__(self, rig: Rig, *copied: int, store_id: Uuid = STORE_ID) -> None:
        super().__init__(CLUSTER_ID, store_id)
        self.rig, self.store_id = rig, store_id
        self.objects = rig.store.objects
        self.pages: Iterator[Page] = iter(())
        self.listings = 0
        self.copy(*copied)

    def copy(self, *starts: int, epoch: int = 0, size: int = 100) -> None:
        """Segments are copied in this order."""
        for start in starts:
            log = log_of(start, [size], epoch=epoch)
            number = 1 + start + 100_000 * epoch
            put(self.rig, number, log, {epoch: start}, store_id=self.store_id)

    def remove(self, start: int, epoch: int = 0) -> None:
        segment_id = Uuid((1 + start + 100_000 * epoch).to_bytes(16, "big"))
        for name in [one for one in self.objects if parse_name(one).segment_id == segment_id]:
            del self.objects[name]

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        self.listings += 1
        end, happens = next(self.pages, NOTHING)
        for name in [one for one in sorted(self.objects) if parse_name(one).start_offset < end]:
            yield StoredObject(name=name, size_bytes=1, modified_ms=0)
        happens()
        for name in [one for one in sorted(self.objects) if parse_name(one).start_offset >= end]:
            yield StoredObject(name=name, size_bytes=1, modified_ms=0)


class Reader:
    """An attached reader."""

    def __init__(self, **choices: Any) -> None:
        self.log = AttachedLog()
        self._attachment = Attachment(
            cluster_id=CLUSTER_ID, log=self.log, choices=Choices(**choices), report=lambda *_: None
        )

    async def read(self, *stores: Paged) -> list[int]:
        """The first offsets of the segments that it serves then."""
        given: Any = {one.store_id: one for one in stores}
        await self._attachment.read(given, [RECORD])
        return self.served

    def state(self) -> RemotePartitionState:
        """As requests get it."""
        settings, ledger = AttachedSettings(self.log), AttachedLedger(self.log)
        clock, doubts = ManualClock(), self.log.doubts
        view = RemoteView(
            settings=settings, ledger=ledger, clock=clock, doubts=doubts, absent="is absent"
        )
        record = settings.view.topic(PARTITION.topic_id)
        assert record is not None
        return view.current(record, 0)

    @property
    def served(self) -> list[int]:
        entries = self.log.state.ledgers[PARTITION.key].entries.values()
        return sorted(one.metadata.start_offset for one in entries)


def busy(store: Paged, first: int = 100) -> Iterator[Page]:
    """Of two segments that are copied during each listing, the first one is missed."""
    for start in range(first, 10_000, 200):
        yield start + 100, partial(store.copy, start, start + 100)


async def attached(store: Paged) -> list[int]:
    return await Reader().read(store)


async def downloaded(store: Paged) -> list[int]:
    (plan,) = await StoreSource(store, threads=THREADS).plans(TOPIC, 0)
    return [one.start_offset for one in plan.pieces]


READERS = pytest.mark.parametrize("read", [attached, downloaded])
Read = Callable[[Paged], Awaitable[list[int]]]


@READERS
@pytest.mark.parametrize("before", [(0,), ()])
async def test_h15_what_is_copied_behind_the_page_of_a_listing_is_not_passed_over(
    tmp_path: Path, read: Read, before: tuple[int, ...]
) -> None:
    """Also not where it is the first one: that would be a later start of the remote log."""
    store = Paged(Rig(tmp_path), *before)
    first = 100 * len(before)
    copies = (first, first + 100, first + 200)
    store.pages = iter([(first + 200, lambda: store.copy(*copies))])
    assert await read(store) == [*before, *copies]
    assert store.listings == 2


@READERS
async def test_h15_what_a_listing_adds_may_lie_above_the_next_gap(
    tmp_path: Path, read: Read
) -> None:
    store = Paged(Rig(tmp_path), 0)
    store.pages = iter(
        [(200, lambda: store.copy(100, 200)), (500, lambda: store.copy(300, 400, 500))]
    )
    assert await read(store) == [0, 100, 200, 300, 400, 500]
    assert store.listings == 3


async def test_h15_a_copy_of_another_leader_epoch_fills_no_gap(tmp_path: Path) -> None:
    """Leader 1 began at 150. Without its first segment, records that it removed would be read."""
    store = Paged(Rig(tmp_path), 0, 100)

    def elected() -> None:
        store.copy(150, epoch=1, size=50)
        store.copy(200, epoch=1)

    store.pages = iter([(200, elected)])
    assert await attached(store) == [0, 100, 150, 200]


async def test_h04_an_import_that_begins_while_a_gap_is_listed_is_settled_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stop may have been missed."""
    for module in ("rlm.tasks.attachment", "rlm.download.sources"):
        monkeypatch.setattr(f"{module}.is_marked", lambda locator: locator.start_offset == 300)
    store, reader = Paged(Rig(tmp_path), 0, 200), Reader()
    store.pages = iter([NOTHING, (0, lambda: store.copy(300))])
    await reader.read(store)
    assert [(one.start, one.why) for one in reader.log.doubts(PARTITION.key)] == [(0, UNSETTLED)]
    assert await reader.read(store) == [0, 200, 300]
    assert reader.log.doubts(PARTITION.key) == ()
    store.remove(300)
    store.pages = iter([NOTHING, (0, lambda: store.copy(300))])
    store.listings = 0
    assert await downloaded(store) == [0, 200, 300]
    assert store.listings == 4  # two with nothing new after the one that has found it


async def test_h15_a_gap_that_stays_costs_one_listing(tmp_path: Path) -> None:
    store, reader = Paged(Rig(tmp_path), 0, 300), Reader()
    assert await reader.read(store) == [0, 300]
    assert store.listings == 2
    store.copy(400)
    assert await reader.read(store) == [0, 300, 400]
    assert store.listings == 3
    assert await downloaded(Paged(store.rig)) == [0, 300, 400]


async def test_h15_copies_that_overlap_leave_no_gap(tmp_path: Path) -> None:
    """As those of leaders whose segments end elsewhere: they are listed once."""
    store = Paged(Rig(tmp_path), 0, 100)
    store.copy(150, size=100)
    store.copy(200, epoch=0, size=200)
    assert await attached(store) == [0, 100, 150, 200]
    assert store.listings == 1


async def test_h15_below_the_start_of_a_backup_no_partition_is_listed_again(tmp_path: Path) -> None:
    cluster = ClusterRecord(cluster_id=CLUSTER_ID, ledger_topic_id=NOBODY, settings_topic_id=NOBODY)
    start = StartRecord(partition=PARTITION.key, remote_log_start_offset=100, cause=CAUSE_COMMAND)
    reader = Reader(backup=view_of_records([cluster, start], 0))
    store = Paged(Rig(tmp_path), 100, 200)
    assert await reader.read(store) == [100, 200]
    assert store.listings == 1


async def test_h15_what_a_round_that_failed_has_read_may_be_replaced_before_the_next_one(
    tmp_path: Path,
) -> None:
    store, reader = Paged(Rig(tmp_path), 100, 200, 300), Reader()

    def away() -> None:
        raise Unavailable("the store is away")

    def replaced() -> None:
        store.copy(150, size=150)
        store.remove(200)

    store.pages = iter([NOTHING, (0, away), (200, replaced)])
    with pytest.raises(Unavailable):
        await reader.read(store)
    assert await reader.read(store) == [100, 150, 300]


async def test_h15_what_a_listing_has_missed_may_be_replaced_during_the_next_one(
    tmp_path: Path,
) -> None:
    """After a round that failed, or that has not settled its partition."""

    def away() -> None:
        raise Unavailable("the store is away")

    def replaced(store: Paged, start: int) -> None:
        store.copy(start - 10, size=110)
        store.remove(start)

    for seed, pages in enumerate(([(0, away)], None)):
        store, reader = Paged(Rig(tmp_path / str(seed)), 0), Reader()
        missed = 100
        if pages is None:
            store.pages = busy(store)
            missed += 200 * MOST_ADDED
        else:
            store.pages = iter([(200, partial(store.copy, 100, 200)), *pages])
        with suppress(Unavailable):
            await reader.read(store)
        store.pages = iter([(missed, partial(replaced, store, missed))])
        found = await reader.read(store)
        assert missed - 10 in found and missed not in found
        assert reader.log.doubts(PARTITION.key) == ()


@pytest.mark.parametrize("others", [(0, 100), ()])
async def test_h15_the_end_does_not_fall_back_where_the_last_segment_is_replaced(
    tmp_path: Path, others: tuple[int, ...]
) -> None:
    store, reader = Paged(Rig(tmp_path), *others, 200), Reader()
    await reader.read(store)

    def replaced() -> None:
        store.copy(190, size=110)
        store.remove(200)

    store.pages = iter([(200, replaced)])
    store.listings = 0
    assert await reader.read(store) == [*others, 190]
    assert store.listings == (2 if others else 3)  # once more where it begins above the start


async def test_h15_an_end_that_has_gone_falls_back_after_one_listing(tmp_path: Path) -> None:
    store, reader = Paged(Rig(tmp_path), 0, 100, 200), Reader()
    await reader.read(store)
    store.remove(200)
    store.listings = 0
    assert await reader.read(store) == [0, 100]
    assert await reader.read(store) == [0, 100]
    assert store.listings == 3


async def test_h15_a_copy_of_an_earlier_leader_does_not_replace_the_last_one(
    tmp_path: Path,
) -> None:
    """Leader 1 began at 200, and leader 0 had records of its own there."""
    store, reader = Paged(Rig(tmp_path), 0, 100, 200), Reader()
    store.copy(200, epoch=1)
    await reader.read(store)

    def replaced() -> None:
        store.copy(199, epoch=1, size=101)
        store.remove(200, epoch=1)

    store.pages = iter([(200, replaced)])
    assert await reader.read(store) == [0, 100, 199, 200]


async def test_h15_a_round_that_fails_takes_no_gap_for_proven(tmp_path: Path) -> None:
    store, reader = Paged(Rig(tmp_path), 0), Reader()
    await reader.read(store)

    def away() -> None:
        raise Unavailable("the store is away")

    store.pages = iter([(200, lambda: store.copy(100, 200)), (0, away)])
    with pytest.raises(Unavailable):
        await reader.read(store)
    assert reader.served == [0]
    assert await reader.read(store) == [0, 100, 200]


async def test_h15_a_segment_below_the_gap_may_be_in_a_store_that_was_listed_before(
    tmp_path: Path,
) -> None:
    """Copies go to the other store from 200 on."""
    former = Paged(Rig(tmp_path / "former"), 0)
    other = Paged(Rig(tmp_path / "other"), store_id=OTHER_ID)

    def copied() -> None:
        former.copy(100)
        other.copy(200)

    other.pages = iter([(0, copied)])
    assert await Reader().read(former, other) == [0, 100, 200]


async def test_h15_a_copy_that_replaces_another_one_is_not_passed_over(
    tmp_path: Path,
) -> None:
    """The former one is removed before the listing comes to it."""
    store, reader = Paged(Rig(tmp_path), 0, 100, 200), Reader()
    await reader.read(store)

    def replaced() -> None:
        store.copy(50, size=150)
        store.remove(100)

    store.pages = iter([(100, replaced)])
    assert await reader.read(store) == [0, 50, 200]


async def test_h15_a_copy_whose_end_another_one_has_is_replaced_without_a_gap(
    tmp_path: Path,
) -> None:
    store, reader = Paged(Rig(tmp_path), 0, 100, 150), Reader()
    await reader.read(store)

    def replaced() -> None:
        store.copy(90, size=110)
        store.remove(100)

    store.pages = iter([(100, replaced)])
    assert await reader.read(store) == [0, 90, 150]


async def test_h15_the_end_that_a_round_that_failed_has_read_does_not_fall_back(
    tmp_path: Path,
) -> None:
    store, reader = Paged(Rig(tmp_path), 0, 100), Reader()
    identity = store.identity

    def away() -> None:
        store.identity = None

    def replaced() -> None:
        store.copy(90, size=110)
        store.remove(100)

    store.pages = iter([(0, away), (100, replaced)])
    with pytest.raises(Invalid, match="no identity"):
        await reader.read(store)
    store.identity = identity
    assert await reader.read(store) == [0, 90]


async def test_h15_a_partition_that_is_never_listed_without_a_new_gap_is_doubtful(
    tmp_path: Path,
) -> None:
    store, reader = Paged(Rig(tmp_path), 0), Reader()
    store.pages = busy(store)
    await reader.read(store)
    assert [(one.start, one.why) for one in reader.log.doubts(PARTITION.key)] == [(0, UNSETTLED)]
    assert store.listings == 1 + MOST_ADDED
    with pytest.raises(Unavailable, match=UNSETTLED):
        await downloaded(store)
    store.pages = iter(())
    served = await reader.read(store)
    assert (served, reader.log.doubts(PARTITION.key)) == ([*range(0, served[-1] + 1, 100)], ())


@pytest.mark.parametrize("before", [(0,), ()])
async def test_h15_an_operator_cannot_accept_what_a_listing_may_have_missed(
    tmp_path: Path, before: tuple[int, ...]
) -> None:
    """It is refused as what will be known later, and no reader is sent to a later start."""
    store, reader = Paged(Rig(tmp_path), *before), Reader(accepted=frozenset({f"{TOPIC}-0"}))
    store.pages = busy(store, first=100 * len(before))
    await reader.read(store)
    assert reader.log.state.plans[PARTITION.key].remote_log_start_offset == 0
    (doubt,) = reader.log.doubts(PARTITION.key)
    state = reader.state()
    for offset in (0, 50, reader.served[-1] - 1):
        with pytest.raises(Unavailable, match=f"{UNSETTLED}.*--accept-history does not"):
            state.certain_end(offset)
    with pytest.raises(Unavailable, match=UNSETTLED):
        state.refuse_doubtful_end()
    assert "offsets from 0 on are not known yet" in doubt.text
    with pytest.raises(Unavailable, match=UNSETTLED):
        await StoreSource(store, threads=THREADS, accepted=[f"{TOPIC}-0"]).plans(TOPIC, 0)
    store.pages = iter(())
    assert await reader.read(store) == [*range(0, reader.served[-1] + 1, 100)]
    assert reader.log.doubts(PARTITION.key) == ()


async def test_h15_a_partition_that_stays_unsettled_is_doubtful_as_a_whole_in_later_rounds_too(
    tmp_path: Path,
) -> None:
    store, reader = Paged(Rig(tmp_path), 0), Reader()
    store.pages = busy(store)
    for _ in range(3):
        await reader.read(store)
        doubts = [(one.start, one.why) for one in reader.log.doubts(PARTITION.key)]
        assert doubts == [(0, UNSETTLED)]


@READERS
async def test_h15_however_pages_and_copies_meet_no_segment_is_passed_over(
    tmp_path: Path, read: Read
) -> None:
    for seed in range(60):
        random, store = Random(seed), Paged(Rig(tmp_path / str(seed)), 0)
        ends = iter(range(100, 100_000, 100))

        def pages(store: Paged = store, random: Random = random, ends: Any = ends) -> Any:
            for _ in range(random.randrange(1, 4)):
                count = random.randrange(5)
                page = 100 * random.randrange(12)
                yield page, lambda count=count: store.copy(*(next(ends) for _ in range(count)))

        store.pages = pages()
        found = await read(store)
        assert found == [*range(0, found[-1] + 1, 100)], seed


def test_h15_a_gap_is_where_the_record_before_it_is_of_no_segment_of_the_same_leader() -> None:
    first = metadata(1, 10, 100, {0: 10})
    second = metadata(2, 100, 200, {0: 100, 1: 150})
    third = metadata(3, 200, 300, {1: 200})
    later = metadata(4, 300, 400, {2: 300})
    overlapping = metadata(5, 280, 350, {1: 280})
    of_another = metadata(6, 120, 140, {1: 120})
    known = [first, second, third, later, overlapping, of_another]
    assert above_gaps(known, Records(known), 10) == [later, of_another]
    assert above_gaps(known, Records(known), 0) == [first, later, of_another]
    assert above_gaps(known, Records(known), 300) == []
    assert above_gaps([third], Records([first, third]), 10) == [third]
    assert without_end([second, third], Records([first, later]), 0) == [second, third]
    assert without_end([second, third], Records([first, later]), 200) == [third]
    assert without_end([third], Records([overlapping]), 0) == []
    assert without_end([third], Records([metadata(7, 200, 300, {0: 200})]), 0) == [third]
