"""The remote tier read from the store: the same batches, no others, and what a service reads."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid, Unavailable
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction, OffsetIndex
from kip405.segments import ByteRange, Layout, SegmentLocator
from rlm_client.store import ahead
from rlm_client.store.opened import AheadMemory, OpenStores
from rlm_client.store.options import store_options
from rsm_plugins.layout.keys import ObjectKind
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.store_kinds import OpenStore
from tests.kip405.batch_builder import control_batch
from tests.rlm_client.store_site import CHUNK_BYTES, Site, log_of, read
from tiered_reads.errors import ServiceError

ABORT = 0


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / "store")
    made.prepare()
    return made


def three_segments(site: Site, layout: Layout = Layout.KAFKA) -> list[bytes]:
    logs = [log_of(0, 60), log_of(60, 120, value=b"w" * 300), log_of(120, 150)]
    for number, log in enumerate(logs, start=1):
        site.add(number, log, layout=layout)
    return logs


@pytest.mark.parametrize("layout", list(Layout))
def test_all_segments_byte_for_byte(site: Site, layout: Layout) -> None:
    logs = three_segments(site, layout)
    found = read(site, 0, 150)
    assert found.data == b"".join(logs)
    assert found.absent is None and site.read_at == []
    assert len(found.from_store) == len(found.pieces) > 3
    assert found.taken_bytes == 0
    assert site.asked == [0], "one list for all of them"


def test_a_read_begins_and_ends_anywhere(site: Site) -> None:
    three_segments(site)
    for start in range(0, 149, 7):
        for end in (start + 1, start + 2, 61, 119, 150):
            if end > start:
                found = read(site, start, end)
                assert [one for one in found.offsets if one < end] == list(range(start, end))
                assert found.pieces[-1].next_offset >= end


def test_little_memory_is_enough(site: Site) -> None:
    logs = three_segments(site)
    found = read(site, 0, 150, store_ahead_bytes=1, store_memory_bytes=1)
    assert found.data == b"".join(logs) and found.taken_bytes == 0


def test_g10_what_is_read_ahead_has_a_limit_but_for_what_a_partition_waits_for() -> None:
    memory = AheadMemory(10)
    assert memory.take(8)
    assert not memory.take(3)
    memory.exceed(3)
    assert memory.taken_bytes == 11
    memory.give_back(8)
    assert memory.take(7) and memory.taken_bytes == 10


class _Noting(AheadMemory):
    """Knows the most that was taken."""

    most_taken = 0

    def exceed(self, size_bytes: int) -> None:
        super().exceed(size_bytes)
        self.most_taken = max(self.most_taken, self.taken_bytes)


def test_g10_where_the_memory_is_taken_a_partition_comes_on_by_a_chunk(site: Site) -> None:
    logs = three_segments(site)
    opened = OpenStores(store_options(**site.options()))
    memory = opened.memory = _Noting(1)
    found = read(site, 0, 150, opened=opened)
    assert found.data == b"".join(logs) and found.absent is None
    assert memory.most_taken == CHUNK_BYTES and memory.taken_bytes == 0


def test_the_end_is_what_a_service_says(site: Site) -> None:
    three_segments(site)
    found = read(site, 120, 200)
    assert found.offsets == list(range(120, 150))
    assert found.absent is not None and not found.absent.is_certain
    assert site.read_at == [150]


def test_h04_a_segment_counts_up_to_where_the_service_says(site: Site) -> None:
    """The leader's history leaves the first segment at 30; what it has beyond never comes."""
    site.add(1, log_of(0, 60), next_offset=30)
    site.add(2, log_of(30, 60, value=b"other"))
    found = read(site, 0, 60)
    assert found.data == log_of(0, 30) + log_of(30, 60, value=b"other")
    assert found.offsets == list(range(60))


@pytest.mark.parametrize("end", [31, 60, 90, 99])
def test_h04_all_that_counts_of_a_segment_whose_batches_were_appended_together(
    site: Site, end: int
) -> None:
    """A follower's index has the last offset of all batches of a fetch at the first of them."""
    log = log_of(0, 120)
    site.add(1, log, next_offset=end, appended=8)
    site.log = [log]
    found = read(site, 0, end)
    assert [one for one in found.offsets if one < end] == list(range(end))
    assert bool(site.read_at) is (end == 31)


def test_h04_an_end_that_no_batch_shows_is_the_services_to_explain(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of the index that lead before it are no proof that there is nothing."""
    monkeypatch.setattr(OffsetIndex, "end_position", lambda index, offset: 1)
    site.add(1, log_of(0, 120), next_offset=60)
    site.log = [log_of(0, 120)]
    assert read(site, 0, 60).offsets == list(range(60))
    assert site.read_at


@pytest.mark.parametrize("bounds", [(45, None), (300, 45)])
def test_what_follows_the_end_is_not_taken_for_batches(
    site: Site, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int | None]
) -> None:
    """The read, or what counts of the segment, ends in a gap that compaction has left."""
    monkeypatch.setattr(ahead, "FIRST_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(ahead, "RANGE_BYTES", CHUNK_BYTES)
    end, counts_to = bounds
    site.add(1, log_of(0, 30) + log_of(60, 300), next_offset=counts_to)
    other = log_of(45, 300, value=b"other")
    if counts_to is not None:
        site.add(2, other)
    found = read(site, 0, end)
    assert found.data == log_of(0, 30) + (b"" if counts_to is None else other)
    assert found.pieces[-1].next_offset == end and site.read_at == []


def test_h04_what_was_read_ahead_counts_no_longer_than_the_list_has_it(site: Site) -> None:
    three_segments(site)
    other = log_of(60, 120, value=b"other")

    def elected(piece: object) -> None:
        if len(site.listed) == 3:
            site.listed[1:] = []
            site.add(5, other)

    found = read(site, 0, 120, fresh_ms=0, between=elected)
    assert found.data == log_of(0, 60) + other
    assert len(site.asked) > 2


def test_h04_of_a_range_that_has_arrived_no_more_counts_than_the_list_has(site: Site) -> None:
    """A program may take minutes for one piece, and the range has others."""
    site.add(1, log_of(0, 60))
    other = log_of(0, 60, value=b"other")

    def elected(piece: object) -> None:
        if b"other" not in bytes(piece.batches):  # type: ignore[attr-defined]
            site.listed.clear()
            site.add(2, other)

    found = read(site, 0, 60, fresh_ms=0, between=elected)
    first = found.pieces[0].next_offset
    assert first < 60
    assert found.data == log_of(0, first) + log_of(first, 60, value=b"other")


def test_a_batch_across_the_end_that_counts_is_left_to_the_service(site: Site) -> None:
    site.add(1, log_of(0, 60), next_offset=31)
    site.log = [log_of(0, 60)]
    found = read(site, 0, 31)
    assert site.read_at and found.offsets[:30] == list(range(30))
    assert all(one < 30 for one in found.from_store)


def test_a_hole_is_left_to_the_service_and_what_follows_is_not(site: Site) -> None:
    site.add(1, log_of(0, 60))
    site.log = [log_of(60, 63)]

    def listed(piece: object) -> None:
        if site.read_at and len(site.listed) == 1:
            site.add(2, log_of(63, 90))

    found = read(site, 0, 90, between=listed)
    assert found.offsets == list(range(90))
    assert site.read_at == [60]
    assert [one.start_offset for one in found.pieces if not one.is_from_store] == [60]


def test_h15_a_hole_is_known_as_far_as_it_goes(site: Site) -> None:
    """Not offset by offset, each of which would take a proof of its own."""
    site.add(1, log_of(0, 60))
    site.add(2, log_of(90, 120))
    site.hole = (60, 90)
    found = read(site, 0, 120)
    assert found.offsets == list(range(60))
    assert found.absent is not None and found.absent.next_offset == 90


def test_retention_a_deleted_segment_is_below_the_log_start(site: Site) -> None:
    three_segments(site)
    first = site.add(9, log_of(150, 180))
    site.path(first).unlink()
    site.listed.pop()
    site.log_start = 200
    found = read(site, 150, 180)
    assert found.pieces == []
    assert found.absent is not None and found.absent.next_offset == 200


def test_h11_missing_objects_are_the_services_to_explain(site: Site) -> None:
    """The list still has the segment: it is tried once more, and then the service reads it."""
    metadata = site.add(1, log_of(0, 60))
    site.path(metadata).unlink()
    site.log = [log_of(0, 60)]
    found = read(site, 0, 60)
    assert found.data == log_of(0, 60) and found.from_store == []
    assert site.read_at == [0] and site.asked == [0, 0, 0]


def test_h11_an_object_that_is_deleted_in_the_midst_of_a_read(site: Site) -> None:
    logs = three_segments(site)
    second = site.add(4, log_of(150, 300, value=b"x" * 200))
    site.log = [log_of(150, 300, value=b"x" * 200)]

    def deleted(piece: object) -> None:
        for kind in (ObjectKind.LOG, ObjectKind.INDEXES):
            site.path(second, kind).unlink(missing_ok=True)

    for ahead_bytes in (1, 1 << 20):
        found = read(site, 0, 300, between=deleted, store_ahead_bytes=ahead_bytes)
        assert found.data == b"".join(logs) + site.log[0]
        assert {one.start_offset for one in found.pieces if not one.is_from_store} >= {297}
        assert min(site.read_at) >= 150, "the segments before it are read from the store"


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES])
def test_g9_damaged_bytes_are_never_given_out(site: Site, kind: ObjectKind) -> None:
    metadata = site.add(1, log_of(0, 60))
    path = site.path(metadata, kind)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    site.log = [log_of(0, 60)]
    found = read(site, 0, 60)
    assert found.data == log_of(0, 60)
    assert site.read_at and found.pieces[-1].is_from_store is False


def test_h09_aborted_transactions_come_from_the_stored_list(site: Site) -> None:
    log = log_of(0, 30) + log_of(30, 33, transactional=True, producer_id=7)
    log += control_batch(33, ABORT, producer_id=7)
    one = AbortedTransaction(producer_id=7, first_offset=30, last_offset=33)
    site.add(1, log, aborted=[one])
    found = read(site, 0, 34, read_committed=True)
    assert found.data == log
    assert found.pieces[-1].aborted == ((7, 30),)
    assert {piece.aborted for piece in found.pieces if piece.next_offset <= 30} == {()}
    assert {piece.aborted for piece in read(site, 0, 34).pieces} == {()}


@pytest.mark.parametrize(("shared_end", "from_store"), [(None, True), (60, True), (33, False)])
def test_h09_another_histories_list_of_what_was_aborted_does_not_count(
    site: Site, shared_end: int | None, from_store: bool
) -> None:
    """The copying leader aborted it at 40, behind where its log left the history at 33."""
    one = AbortedTransaction(producer_id=7, first_offset=30, last_offset=40)
    site.add(1, log_of(0, 60), aborted=[one], shared_end=shared_end)
    site.log = [log_of(0, 60)]
    found = read(site, 0, 60, read_committed=True)
    assert found.offsets == list(range(60))
    assert bool(found.from_store) is from_store and bool(site.read_at) is not from_store
    assert read(site, 0, 60).from_store, "it counts for committed reads only"


def test_h09_of_a_segment_that_is_cut_the_service_decides(site: Site) -> None:
    site.add(1, log_of(0, 60), next_offset=30, shared_end=30)
    site.log = [log_of(0, 30)]
    assert read(site, 0, 30, read_committed=True).from_store == []


def test_a_segment_of_another_store_is_read_by_the_service(site: Site, tmp_path: Path) -> None:
    log = log_of(0, 60)
    site.add(1, log)
    site.log = [log]
    other = Site(tmp_path / "other")
    other.prepare(Uuid(b"\x05" * 16))
    found = read(site, 0, 60, **other.options())
    assert found.data == log and found.from_store == []
    both = {"near": other.options()["stores"], "far": site.options()["stores"]}
    assert read(site, 0, 60, stores=both).from_store
    assert read(site, 0, 60, stores=both, store_rules=[{"topics": ".*", "store": "far"}]).from_store


def test_an_older_service_reads_itself(site: Site) -> None:
    site.is_older, site.log = True, [log_of(0, 60)]
    found = read(site, 0, 60)
    assert found.data == log_of(0, 60) and site.asked == [0]


@pytest.mark.parametrize("kind", ["INVALID", "NOT_FOUND", "FENCED"])
def test_what_a_service_refuses_to_list_its_reads_explain(site: Site, kind: str) -> None:
    site.refusal, site.log_start = ServiceError(kind, "no"), 10
    found = read(site, 0, 60)
    assert found.absent is not None and found.absent.next_offset == 10


def test_a_service_or_store_that_is_away_is_asked_again_later(site: Site) -> None:
    site.add(1, log_of(0, 60))
    site.refusal = ServiceError("UNAVAILABLE", "away")
    with pytest.raises(ServiceError, match="away"):
        read(site, 0, 60)
    site.refusal = None
    site.root.rename(site.root.parent / "gone")
    with pytest.raises(ServiceError, match="the store") as raised:
        read(site, 0, 60)
    assert raised.value.kind == "UNAVAILABLE"


class _Refusing(LocalRemoteStorageManager):
    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> Any:
        raise Invalid("its log is in a bucket that the settings do not name")


def test_a_segment_that_the_settings_cannot_read_is_read_by_the_service(site: Site) -> None:
    async def opened(values: Any, threads: Any) -> OpenStore:
        return OpenStore(manager=_Refusing(site.root, threads=threads), uri="")

    site.add(1, log_of(0, 60))
    site.log = [log_of(0, 60)]
    options = store_options(**site.options())
    kind = replace(options.stores[0].kind, open=opened)
    stores = (replace(options.stores[0], kind=kind),)
    found = read(site, 0, 60, opened=OpenStores(replace(options, stores=stores)))
    assert found.data == log_of(0, 60) and found.from_store == []


def test_a_store_that_is_away_at_the_start_is_read_later(site: Site) -> None:
    site.add(1, log_of(0, 60))
    away = site.root.parent / "away"
    site.root.rename(away)
    stores = OpenStores(store_options(**site.options()))
    stores.begin().result(60)
    away.rename(site.root)
    assert read(site, 0, 60, opened=stores).from_store


def test_stores_are_connected_with_together_and_those_that_fail_are_one_line(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    all_asked = asyncio.Barrier(3)

    async def opened(values: Any, threads: Any) -> OpenStore:
        await all_asked.wait()
        if str(values["rsm.config.root"]) == "/nowhere":
            raise Unavailable("no route")
        return await local.open(values, threads)

    rows = site.options()["stores"]
    elsewhere = {**rows, "rsm.config.root": "/nowhere"}
    options = store_options({"a": elsewhere, "b": rows, "c": elsewhere})
    local = options.stores[0].kind
    made = [replace(one, kind=replace(local, open=opened)) for one in options.stores]
    stores = OpenStores(replace(options, stores=tuple(made), call_timeout_ms=600_000))
    stores.begin().result(120)
    stores.close()
    [line] = [one.getMessage() for one in caplog.records]
    assert line.startswith("event=stores_not_reached stores=a,c errors=a: no route")


def test_g9_indexes_of_another_copy_are_not_those_that_were_stored(site: Site) -> None:
    """They are whole and of the same log, and say otherwise of a transaction."""
    log = log_of(0, 60)
    first = site.add(
        1, log, aborted=[AbortedTransaction(producer_id=7, first_offset=0, last_offset=10)]
    )
    second = site.add(
        2, log, aborted=[AbortedTransaction(producer_id=8, first_offset=0, last_offset=10)]
    )
    site.listed.pop()
    other = site.path(second, ObjectKind.INDEXES).read_bytes()
    site.path(first, ObjectKind.INDEXES).write_bytes(other)
    site.log = [log]
    assert read(site, 0, 60, read_committed=True).from_store == []


@pytest.mark.parametrize(
    "options",
    [
        {"stores": None},
        {"stores": {"plugin": "local"}},
        {"stores": {"plugin": "nothing"}},
        {"stores": {"a": "local"}},
        {"stores": {"plugin": "local", "rsm.config.root": "/x", "rsm.config.rot": "/x"}},
        {"store_rules": [{"topics": ".*", "store": "b"}]},
        {"store_rules": [{"topic": ".*"}]},
        {"store_provider": "nowhere:Provider"},
        {"store_ahead_bytes": 0},
    ],
)
def test_arguments_that_cannot_be_used(site: Site, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rlm_store"):
        store_options(**{**site.options(), **options})


def test_nothing_says_a_secret() -> None:
    secret = "very-secret"
    stores = {
        "plugin": "s3",
        "rsm.config.s3.bucket.name": "b-1",
        "rsm.config.aws.access.key.id": "key",
        "rsm.config.aws.secret.access.key": secret,
    }
    made = store_options(stores)
    assert secret not in repr(made) and secret not in str(made)
    with pytest.raises(ValueError, match="unknown setting") as raised:
        store_options({**stores, "rsm.config.nothing": secret})
    assert secret not in str(raised.value)
