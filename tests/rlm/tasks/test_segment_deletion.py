"""The deletion of a batch of segments: order, and what stops it between two segments (G4)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Fenced, Invalid, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import (
    CustomMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SegmentLocator,
)
from rlm.tasks.segment_deletion import DeletionPermit
from rsm_plugins.layout.keys import parse_name
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.segment_deletes import delete_each
from tests.builders.ledger import OTHER_WRITER
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


class Permit:
    """Everything is allowed, until `frozen`; counts what it was asked."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.frozen: str | None = None
        self.right_asked = 0
        self.wrong_reason: RemoteLogSegmentMetadata | None = None

    def permit(self, *, late: bool = False) -> DeletionPermit:
        return DeletionPermit(
            leader_epoch=0,
            refusal=lambda: self.frozen,
            check_right=self._check_right,
            check_reason=self._check_reason,
            may_be_written=lambda _: late,
            record=partial(self.rig.audit.segments_deleted, cause="a test"),
        )

    async def _check_right(self) -> None:
        self.right_asked += 1
        await self.rig.snapshots.check_leadership(self.rig.led)

    async def _check_reason(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.wrong_reason is metadata:
            raise Fenced("no reason any more")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def copied(rig: Rig, count: int) -> list[RemoteLogSegmentMetadata]:
    """That many finished segments of 10 offsets, with their objects."""
    rig.write_log(*range(0, count * 10 + 10, 10), end=count * 10 + 20)
    return [
        await rig.copied_by_another(start, start + 10, number=900 + start)
        for start in range(0, count * 10, 10)
    ]


def stored(rig: Rig) -> int:
    """Segments of which an object is there."""
    return len({parse_name(name).segment_id for name in rig.store.objects})


async def test_g4_a_batch_larger_than_a_group_goes_from_the_store_and_from_the_ledger(
    rig: Rig,
) -> None:
    segments = await copied(rig, 70)
    allowed = Permit(rig)
    result = await rig.deleter.delete(segments, allowed.permit())
    assert (result.stopped, result.store_errors) == (None, [])
    assert result.deleted == segments
    assert not rig.store.objects
    assert not rig.ledger.view.entries
    assert allowed.right_asked == 4  # before the records and before the objects of two groups


async def test_g4_no_object_goes_before_its_delete_started_was_read_back(rig: Rig) -> None:
    segments = await copied(rig, 3)
    seen = []

    def check(operation: str) -> None:
        seen.append([one.state for one in rig.ledger.view.entries.values()])

    rig.store.before = check
    await rig.deleter.delete(segments, Permit(rig).permit())
    assert seen == [[DELETING] * 3] * 3


async def test_records_of_a_group_are_in_flight_together(rig: Rig) -> None:
    segments = await copied(rig, 5)
    begun: list[RemoteLogSegmentState] = []
    at_first_end: list[int] = []
    rig.ledger.before_publish = lambda one: begun.append(one.state)
    rig.store.before = lambda _: at_first_end.append(len(begun))
    await rig.deleter.delete(segments, Permit(rig).permit())
    assert at_first_end[0] == 5
    assert begun == [DELETING] * 5 + [DELETED] * 5


class CallsStore(MemoryStore):
    """Keeps the calls: how many segments each deletes, and of which segments manifests are read."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__("", STORE_ID)
        self.identity, self.objects, self.deleted = inner.identity, inner.objects, inner.deleted
        self.calls: list[int] = []
        self.looked_at: list[SegmentLocator] = []
        self.before_call: Callable[[], None] = lambda: None

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        self.calls.append(len(locators))
        self.before_call()
        return await delete_each(super().delete_log_segment_data, locators)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        self.looked_at.append(locator)
        return await super().read_manifest(locator)


def counted(rig: Rig) -> CallsStore:
    """The store of the rig, whose calls are kept from now on."""
    rig.shelf.stores[STORE_ID] = rig.store = store = CallsStore(rig.store)
    return store


async def test_a_group_is_deleted_in_one_call(rig: Rig) -> None:
    segments = await copied(rig, 70)
    store = counted(rig)
    result = await rig.deleter.delete(segments, Permit(rig).permit())
    assert result.deleted == segments
    assert store.calls == [64, 6]


async def test_h12_what_may_still_be_written_goes_with_the_others_and_is_looked_at_again(
    rig: Rig,
) -> None:
    segments = await copied(rig, 3)
    store = counted(rig)
    permit = replace(Permit(rig).permit(), may_be_written=lambda one: one is segments[1])
    result = await rig.deleter.delete(segments, permit)
    assert result.deleted == [segments[0], segments[2], segments[1]]
    assert store.calls == [3]
    assert store.looked_at == [segments[1].locator(CLUSTER_ID)]


@pytest.mark.parametrize("late", [False, True], ids=["settled", "may be written"])
async def test_g1_a_freeze_stops_a_batch_between_two_calls(rig: Rig, late: bool) -> None:
    segments = await copied(rig, 70)
    allowed = Permit(rig)
    store = counted(rig)

    def freeze() -> None:
        allowed.frozen = "frozen by command"

    store.before_call = freeze
    result = await rig.deleter.delete(segments, allowed.permit(late=late))
    assert isinstance(result.stopped, Fenced)
    assert "frozen by command" in str(result.stopped)
    assert store.calls == [64]
    assert stored(rig) == 6
    assert result.deleted == segments[:64], "what is gone is recorded"
    assert [one.state for one in rig.ledger.view.entries.values()] == [FINISHED] * 6


async def test_g1_a_freeze_stops_a_group_between_two_stores(rig: Rig) -> None:
    (here,) = await copied(rig, 1)
    rig.shelf.stores[OTHER_STORE] = other = MemoryStore(CLUSTER_ID, OTHER_STORE)
    allowed = Permit(rig)
    counted(rig).before_call = lambda: setattr(allowed, "frozen", "frozen by command")
    segments = [here, in_other_store(rig, here, 201)]
    result = await rig.deleter.delete(segments, allowed.permit())
    assert isinstance(result.stopped, Fenced)
    assert result.deleted == [here]
    assert other.deleted == []


async def test_h05_leadership_that_is_lost_between_records_and_objects_keeps_the_objects(
    rig: Rig,
) -> None:
    segments = await copied(rig, 3)

    def elect(metadata: RemoteLogSegmentMetadata) -> None:
        rig.broker.elect(2, 1)

    led = rig.led
    rig.ledger.after_publish = elect
    permit = DeletionPermit(
        leader_epoch=0,
        refusal=lambda: None,
        check_right=lambda: rig.snapshots.check_leadership(led),
        check_reason=Permit(rig).permit().check_reason,
        may_be_written=lambda _: False,
        record=partial(rig.audit.segments_deleted, cause="a test"),
    )
    result = await rig.deleter.delete(segments, permit)
    assert isinstance(result.stopped, Fenced)
    assert stored(rig) == 3


async def test_h11_nothing_is_published_where_the_store_is_another_one(rig: Rig) -> None:
    segments = await copied(rig, 2)
    rig.store.identity = None
    result = await rig.deleter.delete(segments, Permit(rig).permit())
    assert isinstance(result.stopped, Invalid)
    assert {one.state for one in rig.ledger.view.entries.values()} == {FINISHED}
    assert stored(rig) == 2


@pytest.mark.parametrize("late", [False, True], ids=["settled", "may be written"])
@pytest.mark.parametrize("by_call", [False, True], ids=["each", "the call"])
async def test_a_store_that_is_away_is_not_asked_for_each_segment(
    rig: Rig, by_call: bool, late: bool
) -> None:
    """It refuses the call, or each segment of it."""
    segments = await copied(rig, 66)
    store = counted(rig)

    def away(_: object = None) -> None:
        raise Unavailable("the store is away")

    store.before = away
    if by_call:
        store.before_call = away
    result = await rig.deleter.delete(segments, Permit(rig).permit(late=late))
    assert store.calls == [64]
    assert result.stopped is None
    assert [str(error) for error in result.store_errors] == ["the store is away"]
    assert stored(rig) == 66
    states = [one.state for one in rig.ledger.view.entries.values()]
    assert states.count(DELETING) == 64  # the group after it is not begun


async def test_g1_a_call_without_an_answer_is_repeated_with_fewer_segments(rig: Rig) -> None:
    segments = await copied(rig, 66)
    store = counted(rig)
    store.before_call = partial(_raise, Unavailable("no answer"))
    for size in (64, 32, 16):
        left = [one.metadata for one in rig.ledger.view.entries.values()]
        await rig.deleter.delete(left, Permit(rig).permit())
        assert store.calls == [size], "once it is away, it is not asked for the rest of a group"
        store.calls.clear()
    store.before_call = lambda: None
    left = [one.metadata for one in rig.ledger.view.entries.values()]
    result = await rig.deleter.delete(left, Permit(rig).permit())
    assert len(result.deleted) == len(segments)
    assert store.calls == [8, 16, 32, 8, 2]


OTHER_STORE = Uuid(b"\x52" * 16)


class AwayStore(MemoryStore):
    """Says who it is the first `answers` times; then it is away."""

    answers = 0
    asked = 0

    async def read_identity(self) -> StoreIdentity | None:
        self.asked += 1
        if not self.answers:
            raise Unavailable("the other store is away")
        self.answers -= 1
        return await super().read_identity()


def in_other_store(
    rig: Rig, segment: RemoteLogSegmentMetadata, number: int
) -> RemoteLogSegmentMetadata:
    """Another copy of a segment, which the other store has."""
    custom = CustomMetadata(store_id=OTHER_STORE, indexes_size_bytes=1)
    moved = replace(
        segment,
        segment_id=replace(segment.segment_id, id=Uuid(bytes([number]) * 16)),
        custom_metadata=custom.encode(),
    )
    rig.ledger.copied(moved)
    return moved


@pytest.mark.parametrize(
    ("answers", "left_in"),
    [(0, FINISHED), (1, DELETING)],
    ids=["before the records", "before the objects"],
)
async def test_g6_a_store_that_is_away_keeps_its_own_segments_only(
    rig: Rig, answers: int, left_in: RemoteLogSegmentState
) -> None:
    """Of two groups; it is asked once."""
    here = await copied(rig, 64)
    rig.shelf.stores[OTHER_STORE] = other = AwayStore(CLUSTER_ID, OTHER_STORE)
    other.answers = answers
    first, last = (in_other_store(rig, here[0], number) for number in (201, 202))
    result = await rig.deleter.delete([first, *here, last], Permit(rig).permit())
    assert result.stopped is None
    assert result.deleted == here
    assert [str(error) for error in result.store_errors] == ["the other store is away"]
    assert other.asked == answers + 1
    left = {one.metadata.segment_id: one.state for one in rig.ledger.view.entries.values()}
    assert left == {first.segment_id: left_in, last.segment_id: FINISHED}
    assert other.deleted == []


class RefusingStore(MemoryStore):
    """Never deletes the segments of these ids."""

    def __init__(self, inner: MemoryStore, refused: Sequence[RemoteLogSegmentMetadata]) -> None:
        super().__init__("", STORE_ID)
        self.identity, self.objects, self.deleted = inner.identity, inner.objects, inner.deleted
        self._refused = {one.segment_id.id for one in refused}

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        if locator.segment_id.id in self._refused:
            raise Invalid("the object is locked")
        await super().delete_log_segment_data(locator)


@pytest.mark.parametrize("late", [False, True], ids=["settled", "may be written"])
async def test_a_segment_that_the_store_refuses_to_delete_does_not_keep_the_others(
    rig: Rig, late: bool
) -> None:
    segments = await copied(rig, 4)
    rig.shelf.stores[STORE_ID] = RefusingStore(rig.store, segments[1:2])
    result = await rig.deleter.delete(segments, Permit(rig).permit(late=late))
    assert result.deleted == [segments[0], *segments[2:]]
    assert [str(error) for error in result.store_errors] == ["the object is locked"]
    (left,) = rig.ledger.view.entries.values()
    assert (left.metadata.segment_id, left.state) == (segments[1].segment_id, DELETING)


async def test_a_call_that_fails_as_a_whole_keeps_its_segments_and_is_no_error_of_each(
    rig: Rig,
) -> None:
    segments = await copied(rig, 66)

    def refuse() -> None:
        if store.calls == [64]:
            raise Invalid("the plugin does not know this call")

    store = counted(rig)
    store.before_call = refuse
    result = await rig.deleter.delete(segments, Permit(rig).permit())
    assert result.stopped is None
    assert [str(error) for error in result.store_errors] == ["the plugin does not know this call"]
    assert result.deleted == segments[64:], "a store that refuses is not away"


@pytest.mark.parametrize("as_a_whole", [False, True], ids=["of a segment", "of the call"])
async def test_a_store_that_fences_stops_the_batch_and_what_is_gone_is_recorded(
    rig: Rig, as_a_whole: bool
) -> None:
    segments = await copied(rig, 66)
    plain = rig.store.delete_log_segment_data

    async def fence(locator: SegmentLocator) -> None:
        if locator.segment_id == segments[1].segment_id:
            raise Fenced("somebody else works on it")
        await plain(locator)

    if as_a_whole:
        counted(rig).before_call = partial(_raise, Fenced("somebody else works on it"))
    else:
        rig.store.delete_log_segment_data = fence  # type: ignore[method-assign]
    result = await rig.deleter.delete(segments, Permit(rig).permit())
    assert isinstance(result.stopped, Fenced)
    assert result.store_errors == []
    assert result.deleted == ([] if as_a_whole else [segments[0], *segments[2:64]])


def _raise(error: Exception) -> None:
    raise error


async def test_h06_a_reason_that_does_not_hold_any_more_stops_before_the_objects(rig: Rig) -> None:
    segments = await copied(rig, 2)
    allowed = Permit(rig)
    allowed.wrong_reason = segments[1]
    result = await rig.deleter.delete(segments, allowed.permit())
    assert "no reason" in str(result.stopped)
    assert stored(rig) == 2


async def test_h03_another_writer_stops_the_batch_and_nothing_more_is_begun(rig: Rig) -> None:
    """The records of a group are in flight together, but a call that has not begun never does."""
    segments = await copied(rig, 40)
    rig.ledger.write(
        segments[0].in_state(DELETING, event_timestamp_ms=0, broker_id=2),
        previous=1,
        writer=OTHER_WRITER,
    )
    begun: list[RemoteLogSegmentMetadata] = []
    rig.ledger.before_publish = begun.append
    result = await rig.deleter.delete(segments, Permit(rig).permit())
    assert isinstance(result.stopped, Fenced)
    assert not begun
    assert stored(rig) == 40


@pytest.mark.parametrize("late", [True, False])
async def test_h12_a_manifest_that_lands_after_the_objects_goes_where_one_may_be_written(
    rig: Rig, late: bool
) -> None:
    (segment,) = await copied(rig, 1)
    lands_late(rig, lambda: None)
    result = await rig.deleter.delete([segment], Permit(rig).permit(late=late))
    assert len(result.deleted) == 1
    assert bool(rig.store.objects) is not late


async def test_h12_a_store_that_does_not_say_whether_something_landed_keeps_its_segment(
    rig: Rig,
) -> None:
    """And no other: it is deleted again by the next run."""
    segments = await copied(rig, 2)
    plain, silent = rig.store.read_manifest, segments[1].locator(CLUSTER_ID)

    async def read(locator: SegmentLocator) -> bytes:
        if locator == silent:
            raise Unavailable("no answer")
        return await plain(locator)

    rig.store.read_manifest = read  # type: ignore[method-assign]
    result = await rig.deleter.delete(segments, Permit(rig).permit(late=True))
    assert result.stopped is None
    assert [str(error) for error in result.store_errors] == ["no answer"]
    assert result.deleted == segments[:1]
    (left,) = rig.ledger.view.entries.values()
    assert (left.metadata.segment_id, left.state) == (segments[1].segment_id, DELETING)


async def test_g1_a_freeze_stops_the_deletion_of_what_landed_late(rig: Rig) -> None:
    (segment,) = await copied(rig, 1)
    allowed = Permit(rig)
    lands_late(rig, lambda: setattr(allowed, "frozen", "frozen by command"))
    result = await rig.deleter.delete([segment], allowed.permit(late=True))
    assert "frozen by command" in str(result.stopped)
    assert result.deleted == []
    assert rig.store.objects


def lands_late(rig: Rig, landed: Callable[[], None]) -> None:
    """The manifest of the one segment is stored again after its first deletion."""
    name, manifest = next(
        (name, data) for name, data in rig.store.objects.items() if _is_manifest(data)
    )
    plain, deletions = rig.store.delete_log_segment_data, 0

    async def then_it_lands(locator: SegmentLocator) -> None:
        nonlocal deletions
        deletions += 1
        await plain(locator)
        if deletions == 1:
            rig.store.objects[name] = manifest
            landed()

    rig.store.delete_log_segment_data = then_it_lands  # type: ignore[method-assign]


def _is_manifest(data: bytes) -> bool:
    try:
        Manifest.parse(data)
    except Exception:  # noqa: BLE001 - any other object
        return False
    return True
