"""Two imports of one partition that run at once leave each other's stops (H4)."""

import asyncio
from pathlib import Path

from tests.builders.pinterest import upload_all
from tests.rlm.imports.test_stops import FIRST, SECOND, THIRD, doubts
from tests.rlm.imports.uploads import site_with, waiting


async def test_h04_an_import_that_ends_leaves_the_stop_of_another_one(tmp_path: Path) -> None:
    """Which began later, has found more in their bucket, and is killed."""
    site = site_with(tmp_path, FIRST)
    objects, work = waiting(site, 0)
    first = asyncio.create_task(site.run(work))
    await objects.is_there.wait()
    upload_all(site.bucket, SECOND, THIRD)
    others, work = waiting(site, 200)
    second = asyncio.create_task(site.run(work))
    await others.is_there.wait()
    objects.goes_on.set()
    (done,) = await first
    second.cancel()
    await asyncio.wait([second])
    assert (done.segments, done.stopped) == (1, None)
    assert [one.start for one in await doubts(site)] == [0]
    await site.run()
    assert await doubts(site) == ()


async def test_h04_an_import_that_ends_leaves_a_refusal_that_is_like_one_before_it(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST)
    (site.bucket.folder / "offset.wm").unlink()
    await site.run()
    site.bucket.watermark(0)
    objects, work = waiting(site, 0)
    first = asyncio.create_task(site.run(work))
    await objects.is_there.wait()
    (site.bucket.folder / "offset.wm").unlink()
    await site.run()
    objects.goes_on.set()
    await first
    (doubt,) = await doubts(site)
    assert "it has no offset.wm" in doubt.why
