"""A partition in a bucket with versions, with writers and deletions that fail, die and are late."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kip405.contracts import ExpectedSegment, IndexType, Presence
from kip405.crc import crc32c
from kip405.errors import RemoteStorageError
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
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import S3Settings
from rsm_plugins.threads import StopFlag
from tests.kip405.batch_builder import log_of
from tests.rsm_plugins.pinterest.bucket_model import Bucket, Client, Killed, Network

FOLDER = "of/theirs/c1/t-0"
CUSTOM = CustomMetadata(store_id=Uuid(bytes(16)), layout=Layout.PINTEREST)


class LoopThreads:
    """Works in the event loop, so that a seed has one history."""

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args)

    async def run_stoppable(self, work: Callable[[StopFlag], Any]) -> Any:
        return work(StopFlag())


@dataclass(slots=True)
class Attempt:
    locator: SegmentLocator
    data: LogSegmentData
    log: bytes
    is_finished: bool = False
    is_deleted: bool = False
    may_be_late: bool = False
    """Requests of its writer may reach the server during the deletion, or after it."""


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.bucket = Bucket()
        self.network = Network(self.bucket, self.chance)
        self.folder = folder
        self.partition = TopicIdPartition(topic_id=self._uuid(), topic="t", partition=0)
        self.attempts: list[Attempt] = []
        self.odds = self.chance.choice((0.0, 0.02, 0.1))

    def _uuid(self) -> Uuid:
        return Uuid(self.chance.randbytes(16))

    def process(self, odds: float, prefix: str = "ours") -> tuple[S3RemoteStorageManager, Client]:
        settings = S3Settings(
            bucket="b",
            prefix=prefix,
            part_size_bytes=200,
            pinterest=PinterestLayout(cluster="c1"),
            pinterest_prefix="of/theirs",
        )
        client = Client(self.network, odds)
        manager = S3RemoteStorageManager(settings, LoopThreads(), client.pause)  # type: ignore[arg-type]
        manager._objects.calls._connection = client
        return manager, client

    def attempt(self, custom: CustomMetadata = CUSTOM, at: int | None = None) -> Attempt:
        at = self.chance.choice((100, 200)) if at is None else at
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
        made = Attempt(locator, data, log)
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

    async def _written(self, manager: S3RemoteStorageManager, attempt: Attempt) -> None:
        try:
            answer = await manager.copy_log_segment_data(attempt.locator, attempt.data)
            custom = replace(CUSTOM, plugin=answer).encode()
            attempt.locator = replace(attempt.locator, custom_metadata=custom)
            await manager.write_manifest(attempt.locator, b'{"v":1}')
            attempt.is_finished = True
        except RemoteStorageError:
            return

    async def _delete_later(self, attempt: Attempt, work: asyncio.Future[None]) -> None:
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
            left.discard(f"{FOLDER}/offset.wm")  # of a writer that raised it after the deletion
        assert not left, sorted(left)

    async def _delete(self, manager: S3RemoteStorageManager, one: Attempt) -> None:
        """Whatever is there of it is shown to whoever lists our own keys (H6)."""
        theirs = [key for key in self.keys_of(one) if not key.startswith("ours/")]
        is_log = any(key.endswith(".log") for key in theirs)
        if is_log:
            assert any(key.startswith("ours/") for key in self.keys_of(one)), theirs
        await manager.delete_log_segment_data(one.locator)
        assert not self.keys_of(one), self.keys_of(one)

    def keys_of(self, one: Attempt) -> list[str]:
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
                current = self.bucket.current(f"{FOLDER}/{at:020d}.{suffix}")
                assert current is not None and current.metadata["rlm-segment"] in ids
        if finished:
            mark = self.bucket.current(f"{FOLDER}/offset.wm")
            assert mark is not None
            assert int(mark.body) >= max(one.locator.start_offset for one in finished)
