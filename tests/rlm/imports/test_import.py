"""A bucket of Pinterest's uploader becomes remote segments, and nothing of it changes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import ExpectedSegment, IndexType, Presence
from kip405.errors import Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction, IndexesObject, decode_aborted, transaction_index
from kip405.segment_check import SegmentCheck
from kip405.segments import ByteRange, EpochEntry, RemoteLogSegmentMetadata
from rlm.download.plan import PartitionPlan
from rlm.download.run import Download
from rlm.download.sources import StoreSource
from rlm.plans.pinterest_import import derived_topic_id
from rsm_plugins.layout.pinterest import PinterestLayout
from tests.builders.clock import ManualClock
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.pinterest import (
    CLUSTER,
    TOPIC,
    ImportSite,
    TheirBucket,
    upload_all,
)
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch, control_batch, log_of
from tests.rlm.imports.uploads import assert_ends_the_same, fresh, site_with

FIRST, SECOND, THIRD = log_of(0, [40, 60]), log_of(100, [100]), log_of(200, [50, 50], epoch=2)
LARGE = b"x" * 3_000


async def plans(site: ImportSite, *accepted: str) -> list[PartitionPlan]:
    source = StoreSource(site.store(), threads=THREADS, accepted=accepted)
    return list(await source.plans(TOPIC, None))


async def segments(site: ImportSite, *accepted: str) -> list[RemoteLogSegmentMetadata]:
    (plan,) = await plans(site, *accepted)
    return [one.metadata for one in plan.pieces]


async def indexes(site: ImportSite, segment: RemoteLogSegmentMetadata) -> IndexesObject:
    return IndexesObject.parse(await site.store().fetch_indexes(segment.locator(CLUSTER_ID)))


async def download(site: ImportSite, folder: Path) -> dict[str, bytes]:
    source = StoreSource(site.store(), threads=THREADS)
    work = Download(
        source, folder, clock=ManualClock(), threads=THREADS, report=lambda _progress: None
    )
    await work.run(TOPIC, None)
    return {one.name: one.read_bytes() for one in (folder / f"{TOPIC}-0").iterdir()}


async def check(site: ImportSite, segment: RemoteLogSegmentMetadata) -> SegmentCheck:
    """As `rlm verify --deep` checks it."""
    found, locator = SegmentCheck(segment), segment.locator(CLUSTER_ID)
    store = site.store()
    found.indexes(await store.fetch_indexes(locator))
    log = await store.fetch_log_segment(locator, ByteRange(start=0, end=1 << 30))
    assert isinstance(log, bytes)
    found.feed(log)
    found.finish()
    return found


async def test_what_they_uploaded_is_read_as_it_is(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    before = site.bucket.content()
    (done,) = await site.run()
    assert (done.segments, done.held_back, done.warnings) == (3, 0, ())
    assert done.size_bytes == len(FIRST + SECOND + THIRD)
    (plan,) = await plans(site)
    assert plan.topic_partition.topic_id == derived_topic_id(CLUSTER, TOPIC)
    assert [(one.start_offset, one.next_offset) for one in plan.pieces] == [
        (0, 100),
        (100, 200),
        (200, 300),
    ]
    assert plan.lineage.entries == (
        EpochEntry(epoch=0, start_offset=0),
        EpochEntry(epoch=2, start_offset=200),
    )
    found = await download(site, tmp_path / "out")
    for base, log in ((0, FIRST), (100, SECOND), (200, THIRD)):
        for suffix in ("log", "index", "timeindex"):
            file = site.bucket.file(base, suffix)
            assert found[file.name] == file.read_bytes()
        assert found[f"{base:020d}.log"] == log
    assert site.bucket.content() == before


async def test_every_segment_passes_the_check_of_every_byte(tmp_path: Path) -> None:
    logs = [
        b"".join(batch(base + at, 1, value=LARGE, first_ms=base + at) for at in range(20))
        for base in (0, 20, 40)
    ]
    site = site_with(tmp_path, *logs)
    await site.run()
    for segment in await segments(site):
        found = await check(site, segment)
        assert found.flaws == []
        section = (await indexes(site, segment)).section(IndexType.OFFSET)
        assert section is not None and len(section) >= 8 * 8


async def test_the_same_command_again_has_nothing_to_do(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    before = site.content()
    (again,) = await site.run()
    assert (again.segments, again.plan.new) == (0, ())
    upload_all(site.bucket, THIRD)
    (later,) = await site.run()
    assert [one.base_offset for one in later.plan.new] == [200]
    assert before.items() <= site.content().items()
    whole = ImportSite(fresh(tmp_path, "whole"))
    upload_all(whole.bucket, FIRST, SECOND, THIRD)
    await whole.run()
    assert site.content() == whole.content()


TRANSACTIONS = (
    batch(0, 10, transactional=True, producer_id=7) + batch(10, 10),
    batch(20, 10, transactional=True, producer_id=8) + control_batch(30, 0, producer_id=7),
    control_batch(31, 1, producer_id=8) + batch(32, 8),
)


@pytest.mark.parametrize("writes", range(9))
@pytest.mark.parametrize("logs", [(FIRST, SECOND, THIRD), TRANSACTIONS], ids=["plain", "aborted"])
async def test_killed_anywhere_and_begun_again_it_ends_the_same(
    tmp_path: Path, writes: int, logs: tuple[bytes, ...]
) -> None:
    await assert_ends_the_same(tmp_path, logs, writes)


async def aborted_of(
    site: ImportSite, segment: RemoteLogSegmentMetadata
) -> tuple[AbortedTransaction, ...]:
    section = (await indexes(site, segment)).section(IndexType.ABORTED_TRANSACTIONS)
    assert section is not None
    return decode_aborted(section)


async def test_h09_an_abort_in_a_later_segment_is_in_the_list_of_the_earlier_one(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, *TRANSACTIONS)
    await site.run()
    first, second, third = await segments(site)
    aborted = AbortedTransaction(7, 0, 30)
    assert await aborted_of(site, first) == (aborted,)
    assert await aborted_of(site, second) == (aborted,)
    assert await aborted_of(site, third) == ()
    own = (await indexes(site, second)).section(IndexType.TRANSACTION)
    assert own is not None
    (entry,) = transaction_index(own)
    assert (entry.aborted, entry.last_stable_offset) == (aborted, 20)
    assert [one.txn_index_empty for one in (first, second, third)] == [True, False, True]
    for one in (first, second, third):
        assert (await check(site, one)).flaws == []


async def test_h09_segments_of_an_open_transaction_wait_for_its_end(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [5]), *(_shifted_transactions(5)[:2]))
    (done,) = await site.run()
    assert (done.segments, done.held_back, done.open_since) == (2, 1, 25)
    assert [one.start_offset for one in await segments(site, "clicks-0")] == [0, 5]
    upload_all(site.bucket, _shifted_transactions(5)[2])
    (done,) = await site.run()
    assert (done.segments, done.held_back, done.open_since) == (2, 0, None)
    _, first, second, third = await segments(site)
    aborted = AbortedTransaction(7, 5, 35)
    assert await aborted_of(site, first) == await aborted_of(site, second) == (aborted,)
    assert await aborted_of(site, third) == ()


def _shifted_transactions(by: int) -> tuple[bytes, ...]:
    return (
        batch(by, 10, transactional=True, producer_id=7) + batch(by + 10, 10),
        batch(by + 20, 10, transactional=True, producer_id=8)
        + control_batch(by + 30, 0, producer_id=7),
        control_batch(by + 31, 1, producer_id=8) + batch(by + 32, 8),
    )


async def test_nothing_above_the_watermark_is_taken(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    site.bucket.put(200, THIRD)
    (done,) = await site.run()
    assert (done.segments, done.plan.beyond) == (2, 1)
    assert [one.start_offset for one in await segments(site, f"{TOPIC}-0")] == [0, 100]


Spoil = Callable[[TheirBucket], None]


def without(base_offset: int, suffix: str = "log") -> Spoil:
    return lambda bucket: bucket.file(base_offset, suffix).unlink()


def replaced(base_offset: int, log: bytes) -> Spoil:
    return lambda bucket: bucket.put(base_offset, log)


def flipped(base_offset: int) -> Spoil:
    def spoil(bucket: TheirBucket) -> None:
        file = bucket.file(base_offset)
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)

    return spoil


def cut(base_offset: int) -> Spoil:
    def spoil(bucket: TheirBucket) -> None:
        file = bucket.file(base_offset)
        file.write_bytes(file.read_bytes()[:-1])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (without(100), "the segment at 100 has no log; --accept-gaps"),
        (without(200), "its offset.wm names 200, and that segment has no log"),
        (lambda bucket: (bucket.folder / "offset.wm").unlink(), "it has no offset.wm"),
        (lambda bucket: bucket.watermark(150), "names 150, and that segment has no log"),
    ],
)
async def test_a_partition_that_is_not_whole_is_refused_as_a_whole(
    tmp_path: Path, spoil: Spoil, why: str
) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    spoil(site.bucket)
    assert await site.run() == []
    assert why in (site.planned[0].refused or "")
    (found,) = await plans(site, f"{TOPIC}-0")
    assert found.pieces == ()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (flipped(100), "crc"),
        (replaced(100, log_of(100, [99])), "no log has the offsets 199 to 199"),
        (replaced(100, log_of(100, [101])), "differ from offset 200 on: no batch of the first"),
        (cut(100), "cut short"),
        (replaced(100, log_of(100, [100], epoch=-1)), "without a leader epoch"),
        (replaced(100, log_of(100, [100], epoch=3)), "leader epoch 2 after 3"),
    ],
)
async def test_a_log_that_is_not_right_ends_the_import_before_it(
    tmp_path: Path, spoil: Spoil, why: str
) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    spoil(site.bucket)
    (done,) = await site.run()
    assert re.search(why, done.stopped or "")
    taken = await segments(site, f"{TOPIC}-0")
    assert taken[0].start_offset == 0
    assert all(one.next_offset <= 200 for one in taken)


async def test_gaps_are_accepted_by_an_operator_alone(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, THIRD)
    (stopped,) = await site.run()
    assert "no log has the offsets 100 to 199" in (stopped.stopped or "")
    assert stopped.segments == 0, "the log before a gap may be the one that is not whole"
    (done,) = await site.run(site.work(accepts_gaps=True))
    assert done.segments == 2
    assert [one.start_offset for one in await segments(site)] == [0, 200]


async def test_what_their_retention_has_half_deleted_is_passed_over(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    site.bucket.file(0, "index").unlink()
    (done,) = await site.run()
    assert [one.start_offset for one in await segments(site)] == [100, 200]
    assert done.plan.warnings == ("0: half deleted, without index: passed over",)


async def test_their_retention_may_go_on_between_two_imports(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    for suffix in ("log", "index", "timeindex"):
        site.bucket.file(0, suffix).unlink()
        site.bucket.file(100, suffix).unlink()
    upload_all(site.bucket, THIRD)
    (done,) = await site.run()
    assert (done.segments, [one.start_offset for one in await segments(site)]) == (1, [0, 100, 200])
    assert (await segments(site))[2].segment_leader_epochs == (
        EpochEntry(epoch=2, start_offset=200),
    )


async def test_indexes_of_theirs_that_are_wrong_are_not_taken_but_said(tmp_path: Path) -> None:
    log = b"".join(batch(at, 1, value=LARGE) for at in range(20))
    site = site_with(tmp_path, log, log_of(20, [5]), log_of(25, [5]))
    right = site.bucket.file(0, "index").read_bytes()
    site.bucket.file(0, "index").write_bytes(right[:7] + bytes([right[7] ^ 1]) + right[8:])
    site.bucket.file(20, "timeindex").write_bytes(b"torn")
    (done,) = await site.run()
    assert done.warnings == (
        "0: 1 entries of its .index lead astray",
        "20: time index has 4 bytes, not a multiple of 12",
    )
    section = (await indexes(site, (await segments(site))[0])).section(IndexType.OFFSET)
    assert section is not None and bytes(section) == right


async def test_a_log_that_was_replaced_after_its_import_is_noticed(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    site.bucket.put(0, log_of(0, [100]))
    assert await site.run() == []
    assert "when it was imported: it was replaced" in (site.planned[-1].refused or "")


async def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    work = site.work()
    work._choices = replace(work._choices, cluster_id="another")
    await site.run()
    with pytest.raises(Invalid, match=f"the store belongs to cluster {CLUSTER_ID}"):
        await site.run(work)


async def test_topics_are_chosen_by_name_and_have_the_id_given(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    upload_all(TheirBucket(site.bucket.root, "other"), SECOND)
    own = Uuid(b"\x07" * 16)
    (done,) = await site.run(site.work(topics=[TOPIC], topic_id=own))
    assert done.plan.partition.topic_id == own
    with pytest.raises(NotFound, match="no segment of absent of cluster their-cluster"):
        await site.run(site.work(topics=["absent"]))
    both = await site.run()
    assert [one.plan.partition.topic for one in both] == [TOPIC, "other"]


# -- nothing of theirs is ever deleted or changed; what is gone is not mistaken


async def stat_of(site: ImportSite, segment: RemoteLogSegmentMetadata) -> tuple[Presence, str]:
    expected = ExpectedSegment(
        locator=segment.locator(CLUSTER_ID),
        log_size_bytes=segment.segment_size_bytes,
        indexes_size_bytes=segment.custom().indexes_size_bytes,
    )
    (found,) = await site.store().stat([expected])
    return found.presence, found.detail


@pytest.mark.parametrize("is_batch", [True, False])
async def test_deleting_an_imported_segment_leaves_all_of_theirs(
    tmp_path: Path, is_batch: bool
) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    before = site.bucket.content()
    locators = [one.locator(CLUSTER_ID) for one in await segments(site)]
    if is_batch:
        assert await site.store().delete_log_segments(locators) == (None, None)
    else:
        for locator in locators:
            await site.store().delete_log_segment_data(locator)
    assert set(site.content()) == {"rlm-store.json"}
    assert site.bucket.content() == before
    (done,) = await site.run()
    assert done.segments == 2


async def test_h11_a_log_is_missing_only_beside_its_watermark(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    await site.run()
    (segment,) = await segments(site)
    locator, some = segment.locator(CLUSTER_ID), ByteRange(start=0, end=10)
    assert await stat_of(site, segment) == (Presence.COMPLETE, "")
    site.bucket.file(0).write_bytes(FIRST[:-1])
    presence, detail = await stat_of(site, segment)
    assert presence is Presence.DIFFERENT
    assert f"has {len(FIRST) - 1} bytes instead of {len(FIRST)}" in detail
    site.bucket.file(0).unlink()
    presence, detail = await stat_of(site, segment)
    assert presence is Presence.MISSING and detail.endswith(".log is not there")
    with pytest.raises(NotFound):
        await site.store().fetch_log_segment(locator, some)
    site.bucket.root.rename(tmp_path / "away")
    with pytest.raises(Unavailable, match="their objects are away"):
        await site.store().fetch_log_segment(locator, some)
    with pytest.raises(Unavailable, match="their objects are away"):
        await stat_of(site, segment)


async def test_what_is_ours_of_an_imported_segment_must_be_there_too(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    await site.run()
    (segment,) = await segments(site)
    (own,) = site.root.rglob("*.log")
    own.unlink()
    assert (await stat_of(site, segment))[0] is Presence.MISSING


async def test_other_settings_than_those_of_the_import_read_nothing(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    await site.run()
    (segment,) = await segments(site)
    for other in (
        PinterestLayout(cluster=CLUSTER, entropy_bits=2),
        PinterestLayout(cluster="another", entropy_bits=3),
    ):
        with pytest.raises(Invalid, match="not those of the import"):
            await site.store(other).fetch_log_segment(
                segment.locator(CLUSTER_ID), ByteRange(start=0, end=10)
            )


async def test_a_store_that_does_not_name_their_bucket_says_so(tmp_path: Path) -> None:
    """What lies in place of a log is not taken for the log, and so not for damage."""
    site = site_with(tmp_path, FIRST)
    await site.run()
    (segment,) = await segments(site)
    locator = segment.locator(CLUSTER_ID)
    with pytest.raises(Invalid, match=r"is imported.*rsm\.config\.pinterest\.cluster"):
        await site.own().fetch_log_segment(locator, ByteRange(start=0, end=100))


async def test_copies_of_ours_go_beside_and_never_into_an_imported_segment(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    await site.run()
    (segment,) = await segments(site)
    with pytest.raises(Invalid, match="its log is not ours to write"):
        await site.store().copy_log_segment_data(segment.locator(CLUSTER_ID), cast(Any, None))


async def test_a_listing_that_fails_ends_the_import(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    site.bucket.root.rename(tmp_path / "away")
    with pytest.raises(RemoteStorageError):
        await site.run()


async def test_progress_is_shown_with_each_segment(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    assert [one.segments for one in site.progress] == [1, 2]
    assert [one.size_bytes for one in site.progress] == [len(FIRST), len(FIRST + SECOND)]
