"""Manifests that were listed and cannot be read any more, or that were read of others (H4, H15).

Another copy may have taken the place of what has gone, and be missed by the listing.
"""

from pathlib import Path

import pytest

from kip405.errors import Unavailable
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.tasks.attached_starts import RemoteStarts
from rlm.tasks.settled_listing import UNSETTLED
from tests.builders.ledger import PARTITION, metadata
from tests.builders.rig import Rig
from tests.rlm.tasks.test_h15_listings import (
    NOTHING,
    OTHER_ID,
    READERS,
    Paged,
    Read,
    Reader,
)


class Starting(Paged):
    """`starts`: remote log starts of the manifests that are copied from now on."""

    start = 0

    def copy(self, *starts: int, epoch: int = 0, size: int = 100) -> None:
        before = set(self.objects)
        super().copy(*starts, epoch=epoch, size=size)
        said, says = b'"remote_log_start_offset":0', b'"remote_log_start_offset":%d' % self.start
        for name in self.objects.keys() - before:
            if name.endswith("rsm-manifest"):
                assert said in self.objects[name]
                self.objects[name] = self.objects[name].replace(said, says)


def _replaced(store: Paged, start: int) -> None:
    store.copy(start - 10, size=110)
    store.remove(start)


@pytest.mark.parametrize("others", [(0, 200), (0,)])
async def test_h15_what_could_not_be_read_may_be_replaced_in_the_next_round(
    tmp_path: Path, others: tuple[int, ...]
) -> None:
    store, reader = Paged(Rig(tmp_path), *others, 100), Reader()
    store.errors = {
        name: Unavailable("archived")
        for name in store.objects
        if name.endswith("rsm-manifest") and f"{100:020}" in name
    }
    assert store.errors
    await reader.read(store)
    assert [one.start for one in reader.log.doubts(PARTITION.key)] == [100]
    store.pages = iter([(100, lambda: _replaced(store, 100))])
    found = await reader.read(store)
    assert reader.log.doubts(PARTITION.key) == ()
    assert found == sorted([0, 90, *others[1:]])


@READERS
async def test_h15_what_goes_before_its_manifest_is_read_may_have_been_replaced(
    tmp_path: Path, read: Read
) -> None:
    """A whole store is listed before any manifest is read."""
    store = Paged(Rig(tmp_path), 0, 100)
    store.pages = iter([(1_000, lambda: _replaced(store, 100))])
    assert len(await read(store)) == 2


async def test_h15_a_partition_with_imports_lacks_nothing_of_a_store_that_was_listed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was settled in each store by itself. An import that one more listing shows is not."""
    marked = {0, 300}
    monkeypatch.setattr(
        "rlm.tasks.attachment.is_marked", lambda locator: locator.start_offset in marked
    )
    former = Paged(Rig(tmp_path / "former"), 0)
    other = Paged(Rig(tmp_path / "other"), store_id=OTHER_ID)

    def copied() -> None:
        former.copy(100)
        other.copy(200)

    other.pages = iter([(0, copied)])
    reader = Reader()
    assert await reader.read(former, other) == [0, 100, 200]
    assert reader.log.doubts(PARTITION.key) == ()
    former.pages = iter([NOTHING, (0, lambda: former.copy(300, 400))])
    other.copy(500)
    await reader.read(former, other)
    assert [(one.start, one.why) for one in reader.log.doubts(PARTITION.key)] == [(0, UNSETTLED)]
    assert await reader.read(former, other) == [*range(0, 600, 100)]
    assert reader.log.doubts(PARTITION.key) == ()


def _from(segment: RemoteLogSegmentMetadata, start: int) -> StoredSegment:
    return StoredSegment(metadata=segment, remote_log_start_offset=start)


def test_h02_a_start_stays_unless_all_that_is_left_is_of_later_leaders() -> None:
    key = PARTITION.key
    first, second = metadata(1, 100, 200, {0: 100}), metadata(2, 200, 300, {0: 200, 1: 250})
    later = metadata(3, 50, 100, {1: 50})
    starts = RemoteStarts()
    starts.note(key, _from(second, 150))
    starts.note(key, _from(first, 120))
    starts.note(key, _from(metadata(6, 300, 400, {1: 300}), 130))
    assert starts.of(key) == 150
    starts.left(key, [first])  # the last segment has gone
    assert starts.of(key) == 150
    starts = RemoteStarts()
    starts.note(key, _from(first, 120))
    starts.note(key, _from(later, 60))
    starts.left(key, [metadata(4, 120, 200, {1: 50})])  # nothing of it lies below the start
    starts.left(key, [later, metadata(5, 10, 60, {0: 10})])  # the former leader's, too
    assert starts.of(key) == 120
    starts.left(key, [later])
    assert starts.of(key) == 60
    starts.ended(key)
    assert starts.of(key) == 0


async def test_h04_the_start_of_what_was_discarded_does_not_stay(tmp_path: Path) -> None:
    store, reader = Starting(Rig(tmp_path)), Reader()
    store.start = 4_000
    store.copy(5_000, 5_100)
    await reader.read(store)

    def discarded() -> None:
        store.remove(5_000)
        store.remove(5_100)
        store.start = 0
        store.copy(0, 100, epoch=1)

    def begun() -> None:
        store.remove(5_000)

    store.pages = iter([(5_000, begun), (0, discarded)])
    assert await reader.read(store) == [0, 100, 5_100]
    assert await reader.read(store) == [0, 100]
    assert reader.log.state.plans[PARTITION.key].remote_log_start_offset == 0
