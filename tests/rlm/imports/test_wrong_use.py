"""What an operator reads who has taken wrong settings, or whose bucket is damaged."""

from pathlib import Path

import pytest

from kip405.errors import NotFound, RemoteStorageError
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.builders.pinterest import BITS, CLUSTER, LAYOUT, TOPIC, ImportSite, TheirBucket
from tests.builders.pinterest import upload_all as upload
from tests.kip405.batch_builder import batch, log_of

FIRST, SECOND, THIRD = (log_of(base, [40, 60]) for base in (0, 100, 200))


def site_with(folder: Path, *logs: bytes) -> ImportSite:
    site = ImportSite(folder)
    upload(site.bucket, *logs)
    return site


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            PinterestLayout(cluster=CLUSTER, entropy_bits=12),
            f"with 12 bits of entropy; what is there goes with --cluster {CLUSTER} "
            f"--entropy-bits {BITS}",
        ),
        (
            PinterestLayout(cluster=CLUSTER),
            f"what is there goes with --cluster {CLUSTER} --entropy",
        ),
        (
            PinterestLayout(cluster="another", entropy_bits=BITS),
            f"of cluster another .*; what is there goes with --cluster {CLUSTER} --entropy-bits 3$",
        ),
    ],
)
async def test_settings_that_find_nothing_are_answered_with_those_that_would(
    tmp_path: Path, layout: PinterestLayout, words: str
) -> None:
    site = site_with(tmp_path, FIRST)
    with pytest.raises(NotFound, match=words):
        await site.run(site.work(site.store(layout)))
    assert [one.name for one in site.root.rglob("*.log")] == []


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("kafka/wrong", "nothing is below their prefix"),
        ("kafka", "--entropy-bits 3 and /tiered behind the prefix"),
        ("", "--entropy-bits 3 and /kafka/tiered behind the prefix"),
        (f"kafka/tiered/{LAYOUT.folder(TOPIC, 0)}", "below their prefix has other names"),
    ],
)
async def test_a_wrong_prefix_is_named(tmp_path: Path, prefix: str, words: str) -> None:
    site = site_with(tmp_path, FIRST)
    uploaded = LocalUploadedObjects(site.bucket.root, prefix, FileThreads())
    store = ImportingRemoteStorageManager(site.own(), LAYOUT, uploaded)
    with pytest.raises(NotFound, match=words):
        await site.run(site.work(store))


async def test_a_topic_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    with pytest.raises(NotFound, match=f"segment of absent .*it has topics of these, .* {TOPIC}$"):
        await site.run(site.work(topics=["absent"]))


async def test_an_empty_bucket_is_named_and_one_that_is_away_is_not_empty(tmp_path: Path) -> None:
    site = ImportSite(tmp_path)
    with pytest.raises(RemoteStorageError, match="bring it back") as found:
        await site.run()
    assert found.value.retriable or not isinstance(found.value, NotFound)
    site.bucket.root.mkdir()
    with pytest.raises(NotFound, match="nothing is below their prefix: is it the right one"):
        await site.run()


async def test_a_damaged_log_stops_its_partition_and_no_other(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    later = TheirBucket(site.bucket.root, partition=1)
    upload(later, FIRST, SECOND)
    site.bucket.file(100).write_bytes(SECOND[:-5])
    stopped, other = await site.run()
    assert (stopped.segments, other.segments, other.stopped) == (1, 2, None)
    assert "00000000000000000100.log" in (stopped.stopped or "")
    assert "batch cut short" in (stopped.stopped or "")
    site.bucket.put(100, SECOND)
    mended, other = await site.run()
    assert (mended.segments, mended.stopped, other.segments) == (2, None, 0)


async def test_a_log_that_was_cut_at_a_batch_can_be_mended(tmp_path: Path) -> None:
    """It looks like one behind which another one is missing; once imported it could not change."""
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    site.bucket.put(100, log_of(100, [40]))
    (stopped,) = await site.run()
    assert "no log has the offsets 140 to 199" in (stopped.stopped or "")
    assert stopped.segments == 1
    site.bucket.put(100, SECOND)
    (mended,) = await site.run()
    assert (mended.segments, mended.stopped) == (2, None)


async def test_what_waits_before_a_damaged_log_is_said(tmp_path: Path) -> None:
    opened = batch(100, 10, transactional=True, producer_id=7) + batch(110, 90)
    site = site_with(tmp_path, FIRST, opened, THIRD)
    site.bucket.file(200).write_bytes(THIRD[:-5])
    (stopped,) = await site.run()
    assert "batch cut short" in (stopped.stopped or "")
    assert (stopped.segments, stopped.held_back, stopped.open_since) == (1, 1, 100)


async def test_a_damaged_watermark_refuses_its_partition_and_no_other(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    later = TheirBucket(site.bucket.root, partition=1)
    upload(later, FIRST, SECOND)
    (site.bucket.folder / "offset.wm").write_bytes(b"\0" * 20)
    (other,) = await site.run()
    assert (other.plan.partition.partition, other.segments) == (1, 2)
    refused, _ = site.planned
    assert "not an offset: have it mended" in (refused.refused or "")


async def test_a_watermark_below_the_last_segment_leaves_the_rest(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    site.bucket.watermark(100)
    (done,) = await site.run()
    assert (done.segments, done.plan.beyond) == (2, 1)


async def test_what_is_refused_says_what_to_do(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST)
    (site.bucket.folder / "offset.wm").unlink()
    await site.run()
    assert "have it back in their bucket" in (site.planned[-1].refused or "")
    site.bucket.watermark(700)
    await site.run()
    assert "have one of the two mended" in (site.planned[-1].refused or "")
