"""What comes or goes between two imports of logs that overlap."""

import os
from pathlib import Path

import pytest

from tests.builders.pinterest import UPLOADED_S, ImportSite, upload_all
from tests.kip405.batch_builder import batch, log_of
from tests.rlm.imports.test_overlaps import OTHER, read
from tests.rlm.imports.test_stops import doubts
from tests.rlm.imports.uploads import site_with

SUFFIXES = ("log", "index", "timeindex")
HOUR_S = 3_600


def uploaded_at(site: ImportSite, base_offset: int, after_s: int) -> None:
    for suffix in SUFFIXES:
        at = UPLOADED_S + after_s
        os.utime(site.bucket.file(base_offset, suffix), (at, at))


def gone(site: ImportSite, base_offset: int) -> None:
    for suffix in SUFFIXES:
        site.bucket.file(base_offset, suffix).unlink()


async def test_h04_an_upload_that_began_first_and_ended_last_is_no_settled_copy(
    tmp_path: Path,
) -> None:
    """S3 has the time at which an upload began, so another broker's may be listed only later."""
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(100, [100]))
    uploaded_at(site, 100, 30)
    await site.run()
    site.bucket.put(60, log_of(60, [20, 20]) + log_of(100, [100, 100]))
    (done,) = await site.run()
    assert "differ from offset 60 on: no batch" in (done.stopped or "")
    site.bucket.put(80, log_of(80, [20]) + log_of(100, [100, 100]))
    gone(site, 60)
    (done,) = await site.run()
    assert (done.stopped, done.segments) == (None, 1)
    assert await read(site, 0, is_committed=False) == list(range(300))


async def test_a_copy_is_settled_by_any_later_log_that_was_imported_much_later(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(40, [40]), log_of(100, [100]))
    uploaded_at(site, 100, 60)
    await site.run()
    assert [one.base_offset for one in (await site.run())[0].plan.new] == [40]
    upload_all(site.bucket, log_of(200, [50]))
    uploaded_at(site, 200, HOUR_S)
    assert [one.base_offset for one in (await site.run())[0].plan.new] == [40, 200]
    assert [one.base_offset for one in (await site.run())[0].plan.new] == [40]
    upload_all(site.bucket, log_of(250, [50]))
    uploaded_at(site, 250, HOUR_S + 1)
    await site.run()
    assert (await site.run())[0].plan.new == ()


async def test_their_retention_may_delete_the_log_of_a_settled_copy_first(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(40, [40]), log_of(100, [100]))
    uploaded_at(site, 100, 2 * HOUR_S)
    await site.run()
    gone(site, 0)
    upload_all(site.bucket, log_of(200, [50]))
    (done,) = await site.run()
    assert (done.stopped, done.segments) == (None, 1)
    assert await doubts(site) == ()


@pytest.mark.parametrize("other", [batch(80, 10, value=OTHER), log_of(85, [5])])
async def test_h04_a_log_differs_from_one_that_is_not_the_next(
    tmp_path: Path, other: bytes
) -> None:
    """Neither of the two that are the same is imported: the third may be the one that counts."""
    site = site_with(tmp_path, log_of(0, [40, 20, 20, 20]), log_of(60, [20, 20, 50]), other)
    (stopped,) = await site.run()
    assert "the logs at 0 and 8" in (stopped.stopped or "")
    assert stopped.segments == 0
    (doubt,) = await doubts(site)
    assert doubt.start == 0


async def test_h04_an_imported_log_that_was_replaced_proves_nothing(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40]) + batch(80, 20, value=OTHER))
    await site.run()
    replaced = log_of(0, [40, 40]) + batch(80, 20, value=OTHER[::-1])
    site.bucket.put(0, replaced)
    upload_all(site.bucket, batch(80, 20, value=OTHER[::-1]) + log_of(100, [50]))
    (done,) = await site.run()
    assert "has other bytes than when it was imported" in (done.stopped or "")
    assert done.segments == 0
