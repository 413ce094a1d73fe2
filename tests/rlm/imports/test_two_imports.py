"""Two imports of one partition that run at once leave each other's stops (H4)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from kip405.contracts import StoredObject
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from tests.builders.pinterest import LAYOUT, TOPIC, TheirBucket, upload_all
from tests.rlm.imports.test_stops import FIRST, SECOND, THIRD, doubts
from tests.rlm.imports.uploads import Waiting, killed, site_with, waiting


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


async def test_a_partition_that_came_since_their_bucket_was_listed_has_not_gone(
    tmp_path: Path,
) -> None:
    """Another import has found it, and its stop stays."""
    site = site_with(tmp_path, FIRST)
    await site.run()
    other = TheirBucket(site.bucket.root, partition=1)

    class Late(Waiting):
        async def listed(self, folder: str) -> AsyncIterator[StoredObject]:
            async for one in super().listed(folder):
                yield one
            if not other.folder.exists() and LAYOUT.folder(TOPIC, 1).startswith(folder):
                upload_all(other, FIRST, SECOND)
                await killed(site, 100)

    objects = Late(site, 100)
    await site.run(site.work(ImportingRemoteStorageManager(site.own(), LAYOUT, objects)))
    (doubt,) = await doubts(site, 1)
    assert "an import is under way here" in doubt.why
    await site.run()
    assert await doubts(site, 1) == ()
