"""Histories of one partition in a bucket with versions: writers and deletions fail, die, are late.

Complete segments are there and readable at the end, and everything else can be removed by what is
listed under our own keys.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kip405.errors import RemoteStorageError, Unavailable
from kip405.segments import (
    Layout,
    SegmentLocator,
)
from rsm_plugins.layout.keys import object_names
from rsm_plugins.s3.pinterest import PinterestSegments
from rsm_plugins.s3.uploads import Upload
from rsm_plugins.s3.versions import Version, Versions
from tests.rsm_plugins.pinterest.bucket_model import Killed, error_of
from tests.rsm_plugins.pinterest.histories import CUSTOM, World


@pytest.mark.parametrize("seed", [*range(40), 1534, 5467])
def test_histories(seed: int, tmp_path: Path) -> None:
    asyncio.run(World(seed, tmp_path).run())


async def test_h12_a_writer_that_stores_during_its_deletion_stays_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion has found nothing, and stands for so long that all but the log is stored."""
    world = World(8, tmp_path)
    world.odds = 0.0
    attempt, (manager, _) = world.attempt(), world.process(0.0)
    is_stored, goes_on = asyncio.Event(), asyncio.Event()
    reference, listed = PinterestSegments._reference, Versions.listed
    complete = Upload.complete_version
    writers: list[asyncio.Task[bytes]] = []

    async def completed(upload: Upload) -> str | None:
        is_stored.set()
        await goes_on.wait()
        return await complete(upload)

    async def stand() -> None:
        if not writers:
            copy = world.process(0.0)[0].copy_log_segment_data(attempt.locator, attempt.data)
            writers.append(asyncio.create_task(copy))
            await is_stored.wait()

    async def read(
        segments: PinterestSegments, locator: SegmentLocator, version: str | None = None
    ) -> str | None:
        found = await reference(segments, locator, version)
        await stand()
        return found

    async def listing(versions: Versions, beginning: str) -> AsyncIterator[Version]:
        found = [one async for one in listed(versions, beginning)]
        await stand()
        for one in found:
            yield one

    monkeypatch.setattr(PinterestSegments, "_reference", read)
    monkeypatch.setattr(Versions, "listed", listing)
    monkeypatch.setattr(Upload, "complete_version", completed)
    await manager.delete_log_segment_data(attempt.locator)
    goes_on.set()
    await asyncio.wait(writers)
    assert writers[0].exception() is None
    assert [one async for one in manager.list_objects("c")]
    await manager.delete_log_segment_data(attempt.locator)
    assert not world.bucket.versions


async def test_a_log_that_is_completed_after_its_copy_has_failed_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is late, and the server answers no abort meanwhile."""
    world = World(8, tmp_path)
    world.odds = 0.0
    attempt, (manager, _) = world.attempt(), world.process(0.0)
    complete, abort = world.bucket.complete_multipart_upload, world.bucket.abort_multipart_upload
    late: list[dict[str, Any]] = []

    def complete_late(**given: Any) -> dict[str, Any]:
        late.append(given)
        raise error_of("InternalError", "CompleteMultipartUpload", 500)

    def refuse(**_: Any) -> dict[str, Any]:
        raise error_of("InternalError", "AbortMultipartUpload", 500)

    monkeypatch.setattr(world.bucket, "complete_multipart_upload", complete_late)
    monkeypatch.setattr(world.bucket, "abort_multipart_upload", refuse)
    with pytest.raises(Unavailable):
        await manager.copy_log_segment_data(attempt.locator, attempt.data)
    monkeypatch.setattr(world.bucket, "abort_multipart_upload", abort)
    complete(**late[0])
    assert any(key.endswith(".log") for key in world.bucket.versions)
    assert [one async for one in manager.list_objects("c")]
    await manager.delete_log_segment_data(attempt.locator)
    assert not world.bucket.versions


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_h12_no_upload_of_an_attempt_that_is_copied_twice_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """The request that completes the first one is late; what was recorded last is the second."""
    world = World(8, tmp_path)
    world.odds = 0.0
    attempt, (manager, _) = world.attempt(), world.process(0.0)
    complete = world.bucket.complete_multipart_upload
    dead, client = world.process(0.0)
    late: list[dict[str, Any]] = []

    def complete_late(**given: Any) -> dict[str, Any]:
        late.append(given)
        client.is_dead = True
        raise Killed

    def fail(**_: Any) -> dict[str, Any]:
        raise error_of("InvalidPart", "CompleteMultipartUpload", 400)

    monkeypatch.setattr(world.bucket, "complete_multipart_upload", complete_late)
    with pytest.raises(Killed):
        await dead.copy_log_segment_data(attempt.locator, attempt.data)
    if is_deleted:
        monkeypatch.setattr(world.bucket, "complete_multipart_upload", complete)
        await manager.copy_log_segment_data(attempt.locator, attempt.data)
        await manager.delete_log_segment_data(attempt.locator)
    else:
        monkeypatch.setattr(world.bucket, "complete_multipart_upload", fail)
        with pytest.raises(RemoteStorageError):
            await manager.copy_log_segment_data(attempt.locator, attempt.data)
    with pytest.raises(ClientError, match="NoSuchUpload"):
        complete(**late[0])
    assert not world.bucket.versions


@pytest.mark.parametrize("is_one_of_many", [True, False])
@pytest.mark.parametrize("layout", [Layout.KAFKA, Layout.BLOCKS])
async def test_segments_of_other_layouts_leave_no_versions_either(
    tmp_path: Path, layout: Layout, is_one_of_many: bool
) -> None:
    """Of topics whose layout was changed, or is another one: the bucket has versions for all."""
    world = World(8, tmp_path)
    manager, _ = world.process(0.0)
    attempts = [world.attempt(replace(CUSTOM, layout=layout)) for _ in range(3)]
    for one in attempts:
        for _ in range(2):
            await manager.copy_log_segment_data(one.locator, one.data)
        await manager.write_manifest(one.locator, b'{"v":1}')
    stays, *others = [one.locator for one in attempts]
    if is_one_of_many:
        assert await manager.delete_log_segments(others) == (None, None)
    else:
        for locator in others:
            await manager.delete_log_segment_data(locator)
    left = set(world.bucket.versions)
    assert {str(stays.segment_id.id) in key for key in left} == {True}
    assert len(left) == len(object_names(stays))
    await manager.delete_log_segment_data(stays)
    assert not world.bucket.versions
