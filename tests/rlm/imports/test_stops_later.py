"""What becomes of a stop when a later import finds less than the one before (H4)."""

from pathlib import Path

import pytest

from tests.builders.pinterest import ImportSite, TheirBucket, upload_all
from tests.kip405.batch_builder import log_of
from tests.rlm.imports.test_overlaps_later import gone
from tests.rlm.imports.test_stops import FIRST, SECOND, THIRD, _removed, doubts
from tests.rlm.imports.uploads import killed, site_with


async def starts(site: ImportSite, partition: int = 0) -> list[int]:
    return [one.start for one in await doubts(site, partition)]


async def test_h04_a_partition_that_has_gone_from_their_bucket_says_what_to_do(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    other = TheirBucket(site.bucket.root, partition=1)
    upload_all(other, FIRST, SECOND)
    await killed(site, 100)
    for file in site.bucket.folder.iterdir():
        file.unlink()
    done = await site.run()
    assert [one.plan.partition.partition for one in done] == [1]
    refused = [one.refused for one in site.planned if one.partition.partition == 0][-1] or ""
    assert "nothing of it any more" in refused and "--accept-history clicks-0, which" in refused
    (doubt,) = await doubts(site)
    assert refused in doubt.why
    assert await starts(site, 1) == []
    await site.run()
    assert await doubts(site) == (doubt,)
    upload_all(site.bucket, FIRST, SECOND)
    await site.run()
    assert await doubts(site) == ()


async def _with_a_gap(folder: Path) -> ImportSite:
    """The second segment was removed from our store, and its import anew was killed."""
    site = site_with(folder, FIRST, SECOND, THIRD)
    await site.run()
    _removed(site, 100)
    await killed(site, 100)
    assert await starts(site) == [100]
    return site


async def test_h04_a_refusal_leaves_the_stop_where_a_segment_is_missing(tmp_path: Path) -> None:
    site = await _with_a_gap(tmp_path)
    (site.bucket.folder / "offset.wm").unlink()
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "it has no offset.wm" in doubt.why) == (100, True)


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_h04_what_is_missing_behind_a_stop_and_in_their_bucket_is_no_gap(
    tmp_path: Path, *, is_damaged: bool
) -> None:
    site = await _with_a_gap(tmp_path)
    gone(site, 100)
    upload_all(site.bucket, log_of(300, [100]))
    if is_damaged:
        site.bucket.file(300).write_bytes(log_of(300, [100])[:-1])
    (done,) = await site.run()
    why = "batch cut short" if is_damaged else "no log has the offsets 100 to 199, and no segment"
    assert why in (done.stopped or "")
    assert await starts(site) == [100]
    upload_all(site.bucket, log_of(300, [100]))
    (done,) = await site.run(site.work(accepts_gaps=True))
    assert done.stopped is None
    assert await starts(site) == []


async def test_h04_a_manifest_that_cannot_be_used_leaves_its_stop_when_it_is_removed(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    await site.run()
    (manifest,) = site.root.rglob(f"{100:020d}-*.rsm-manifest")
    manifest.write_bytes(b"{}")
    await site.run()
    manifest.unlink()
    assert await starts(site) == [100]
    await site.run()
    assert await starts(site) == []


async def test_h04_a_log_that_is_to_fill_an_accepted_gap_stops_there(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [50, 10]), THIRD)
    await site.run(site.work(accepts_gaps=True))
    assert await starts(site) == []
    upload_all(site.bucket, log_of(50, [10, 40]))
    site.bucket.file(50).write_bytes(log_of(50, [10, 40])[:-1])
    site.bucket.watermark(200)
    await site.run(site.work(accepts_gaps=True))
    assert await starts(site) == [60]


@pytest.mark.parametrize("watermark", [None, b"no number", b"%020d" % 50])
async def test_a_refusal_stops_where_their_log_begins(
    tmp_path: Path, watermark: bytes | None
) -> None:
    """Nothing is missing before that, when the import goes on."""
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    site.bucket.file(0).unlink()  # by their retention
    file = site.bucket.folder / "offset.wm"
    if watermark is None:
        file.unlink()
    else:
        file.write_bytes(watermark)
    await site.run()
    assert await starts(site) == [100]
    site.bucket.watermark(200)
    site.bucket.file(200).write_bytes(THIRD[:-1])
    await site.run()
    assert await starts(site) == [200]
    upload_all(site.bucket, THIRD)
    (done,) = await site.run()
    assert (done.stopped, await starts(site)) == (None, [])


async def test_h04_what_another_import_may_still_write_is_not_passed_over(tmp_path: Path) -> None:
    """It has listed logs that their retention has deleted since, and may be killed behind them."""
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    await killed(site, 0)
    gone(site, 0)
    (done,) = await site.run()
    assert "no log has the offsets 0 to 99" in (done.stopped or "")
    assert await starts(site) == [0]
    (done,) = await site.run(site.work(accepts_gaps=True))
    assert (done.stopped, await starts(site)) == (None, [])
