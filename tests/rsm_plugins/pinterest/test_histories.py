"""Histories of one partition in a bucket with versions: writers and deletions fail, die, are late.

Complete segments are there and readable at the end, and everything else can be removed by what is
listed under our own keys.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kip405.contracts import ExpectedSegment, IndexType, Presence
from kip405.crc import crc32c
from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import build_indexes_object
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    FileSlice,
    Layout,
    LogSegmentData,
    SegmentLocator,
)
from rsm_plugins.conformance.subject import read_answer
from rsm_plugins.layout.keys import object_names
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.pinterest import PinterestSegments
from rsm_plugins.s3.settings import S3Settings
from rsm_plugins.s3.uploads import Upload
from rsm_plugins.s3.versions import Version, Versions
from rsm_plugins.threads import StopFlag
from tests.kip405.batch_builder import log_of
from tests.rsm_plugins.pinterest.bucket_model import Bucket, Client, Killed, Network, error_of

_FOLDER = "of/theirs/c1/t-0"
_CUSTOM = CustomMetadata(store_id=Uuid(bytes(16)), layout=Layout.PINTEREST)


class _Threads:
    """Works in the event loop, so that a seed has one history."""

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args)

    async def run_stoppable(self, work: Callable[[StopFlag], Any]) -> Any:
        return work(StopFlag())


@dataclass(slots=True)
class _Attempt:
    locator: SegmentLocator
    data: LogSegmentData
    log: bytes
    is_finished: bool = False
    is_deleted: bool = False
    may_be_late: bool = False
    """Requests of its writer may reach the server during the deletion, or after it."""


class _World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.bucket = Bucket()
        self.network = Network(self.bucket, self.chance)
        self.folder = folder
        self.partition = TopicIdPartition(topic_id=self._uuid(), topic="t", partition=0)
        self.attempts: list[_Attempt] = []
        self.odds = self.chance.choice((0.0, 0.02, 0.1))

    def _uuid(self) -> Uuid:
        return Uuid(self.chance.randbytes(16))

    def process(self, odds: float) -> tuple[S3RemoteStorageManager, Client]:
        settings = S3Settings(
            bucket="b",
            prefix="ours",
            part_size_bytes=200,
            pinterest=PinterestLayout(cluster="c1"),
            pinterest_prefix="of/theirs",
        )
        client = Client(self.network, odds)
        manager = S3RemoteStorageManager(settings, _Threads(), client.pause)  # type: ignore[arg-type]
        manager._objects.calls._connection = client
        return manager, client

    def attempt(self, custom: CustomMetadata = _CUSTOM) -> _Attempt:
        at = self.chance.choice((100, 200))
        log = log_of(at, [self.chance.randrange(1, 30)])
        path = self.folder / f"{len(self.attempts)}.source"
        path.write_bytes(log)
        indexes = build_indexes_object(
            {IndexType.OFFSET: self.chance.randbytes(8), IndexType.TIMESTAMP: b""}
        )
        data = LogSegmentData(
            log=FileSlice(path=str(path), position=0, size_bytes=len(log)),
            log_crc32c=crc32c(log),
            indexes=indexes,
            indexes_crc32c=crc32c(indexes),
        )
        locator = SegmentLocator(
            cluster_id="c",
            segment_id=RemoteLogSegmentId(topic_id_partition=self.partition, id=self._uuid()),
            start_offset=at,
            custom_metadata=custom.encode(),
        )
        made = _Attempt(locator, data, log)
        self.attempts.append(made)
        return made

    async def later(self) -> None:
        for _ in range(self.chance.randrange(150)):
            await asyncio.sleep(0)

    async def write(self) -> None:
        await self.later()
        attempt = self.attempt()
        manager, client = self.process(self.odds)
        work = asyncio.ensure_future(self._written(manager, attempt))
        waits = asyncio.ensure_future(self._delete_later(attempt, work))
        if self.chance.random() < 0.5:
            await self.later()
            if not work.done():
                attempt.may_be_late = True
                if self.chance.random() < 0.5:
                    client.is_dead = True
                else:
                    work.cancel()
        await asyncio.wait((work, waits))
        error = None if work.cancelled() else work.exception()
        assert error is None or isinstance(error, Killed), error
        waits.result()

    async def _written(self, manager: S3RemoteStorageManager, attempt: _Attempt) -> None:
        try:
            answer = await manager.copy_log_segment_data(attempt.locator, attempt.data)
            custom = replace(_CUSTOM, plugin=answer).encode()
            attempt.locator = replace(attempt.locator, custom_metadata=custom)
            await manager.write_manifest(attempt.locator, b'{"v":1}')
            attempt.is_finished = True
        except RemoteStorageError:
            return

    async def _delete_later(self, attempt: _Attempt, work: asyncio.Future[None]) -> None:
        if self.chance.random() < 0.3:
            return
        if self.chance.random() < 0.7:
            await asyncio.wait((work,))
        await self.later()
        if not work.done():
            attempt.may_be_late = True
        attempt.is_finished, attempt.is_deleted = False, True
        for _ in range(self.chance.randrange(1, 4)):
            manager, client = self.process(self.odds)
            deletion = asyncio.ensure_future(manager.delete_log_segment_data(attempt.locator))
            if self.chance.random() < 0.3:
                await self.later()
                if not deletion.done():
                    client.is_dead = True
            await asyncio.wait((deletion,))
            error = None if deletion.cancelled() else deletion.exception()
            if error is not None and not isinstance(error, RemoteStorageError | Killed):
                raise error

    async def run(self) -> None:
        writers = [asyncio.ensure_future(self.write()) for _ in range(self.chance.randrange(1, 6))]
        for writer in writers:
            await writer
        await self.network.settled()
        manager, _ = self.process(0.0)
        for one in self.attempts:
            if one.is_deleted:
                one.is_finished = False
        await self._check(manager)
        for one in self.attempts:
            if not one.is_finished:
                await self._delete(manager, one)
        await self._check(manager)
        self._check_views()
        for one in self.attempts:
            if one.is_finished:
                one.is_finished = False
                await self._delete(manager, one)
                await self._check(manager)
        assert manager._pinterest is not None
        await manager._pinterest.sweep(-1)  # uploads whose answer was lost go by age
        assert not self.bucket.uploads
        left = set(self.bucket.versions)
        if any(one.may_be_late for one in self.attempts):
            left.discard(f"{_FOLDER}/offset.wm")  # of a writer that raised it after the deletion
        assert not left, sorted(left)

    async def _delete(self, manager: S3RemoteStorageManager, one: _Attempt) -> None:
        """Whatever is there of it is shown to whoever lists our own keys (H6)."""
        theirs = [key for key in self._keys_of(one) if not key.startswith("ours/")]
        is_log = any(key.endswith(".log") for key in theirs)
        if is_log:
            assert any(key.startswith("ours/") for key in self._keys_of(one)), theirs
        await manager.delete_log_segment_data(one.locator)
        assert not self._keys_of(one), self._keys_of(one)

    def _keys_of(self, one: _Attempt) -> list[str]:
        name = str(one.locator.segment_id.id)
        return [
            key
            for key, several in self.bucket.versions.items()
            for version in several
            if version.metadata.get("rlm-segment") == name or name in key
            if not key.endswith("offset.wm")
        ]

    async def _check(self, manager: S3RemoteStorageManager) -> None:
        for one in self.attempts:
            if not one.is_finished:
                continue
            wanted = ByteRange(start=0, end=len(one.log))
            assert read_answer(await manager.fetch_log_segment(one.locator, wanted)) == one.log
            expected = ExpectedSegment(
                locator=one.locator,
                log_size_bytes=len(one.log),
                indexes_size_bytes=len(one.data.indexes),
            )
            (found,) = await manager.stat([expected])
            assert found.presence is Presence.COMPLETE, found.detail

    def _check_views(self) -> None:
        finished = [one for one in self.attempts if one.is_finished]
        for at in {one.locator.start_offset for one in finished}:
            ids = {str(one.locator.segment_id.id) for one in finished}
            for suffix in ("log", "index", "timeindex"):
                current = self.bucket.current(f"{_FOLDER}/{at:020d}.{suffix}")
                assert current is not None and current.metadata["rlm-segment"] in ids
        if finished:
            mark = self.bucket.current(f"{_FOLDER}/offset.wm")
            assert mark is not None
            assert int(mark.body) >= max(one.locator.start_offset for one in finished)


@pytest.mark.parametrize("seed", [*range(40), 1534, 5467])
def test_histories(seed: int, tmp_path: Path) -> None:
    asyncio.run(_World(seed, tmp_path).run())


async def test_h12_a_writer_that_stores_during_its_deletion_stays_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion has found nothing, and stands for so long that all but the log is stored."""
    world = _World(8, tmp_path)
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
    world = _World(8, tmp_path)
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
    world = _World(8, tmp_path)
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
    world = _World(8, tmp_path)
    manager, _ = world.process(0.0)
    attempts = [world.attempt(replace(_CUSTOM, layout=layout)) for _ in range(3)]
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
