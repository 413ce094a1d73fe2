"""The kit on stores that are wrong on purpose: each wrong is caught by the case about it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import (
    ExpectedSegment,
    Presence,
    SegmentPresence,
    StoredObject,
    StoreIdentity,
)
from kip405.crc import crc32c
from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.conformance.runner import CASES, Status, chosen, run_suite
from rsm_plugins.conformance.subject import Subject, read_answer
from rsm_plugins.layout.keys import ObjectKind, segment_stem
from rsm_plugins.local.manager import LocalRemoteStorageManager
from tests.rsm_plugins.harness import new_uuid


class OffByOne(LocalRemoteStorageManager):
    """Takes the end of a range for the last byte, as HTTP does."""

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        longer = replace(byte_range, end=byte_range.end + 1)
        return await super().fetch_log_segment(locator, longer)


class RefusesTheEnd(LocalRemoteStorageManager):
    """Answers 416 where a range begins at the end."""

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        found = read_answer(await super().fetch_log_segment(locator, byte_range))
        if not found:
            raise NotFound(f"{locator.segment_id}: range not satisfiable")
        return found


class TrustsItsSource(LocalRemoteStorageManager):
    """Does not compare the bytes it stores with the checksums given."""

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        log = read_answer(data.log)
        believed = replace(data, log_crc32c=crc32c(log), indexes_crc32c=crc32c(data.indexes))
        return await super().copy_log_segment_data(locator, believed)


class KeepsTheFirst(LocalRemoteStorageManager):
    """Takes an object that is there for the one to be stored."""

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        try:
            await self.fetch_log_segment(locator, ByteRange(start=0, end=0))
        except NotFound:
            return await super().copy_log_segment_data(locator, data)
        return b""


class ForgetsTheIndexes(LocalRemoteStorageManager):
    """Deletes log and manifest only."""

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        try:
            indexes = await self.fetch_indexes(locator)
        except NotFound:
            indexes = b""
        await super().delete_log_segment_data(locator)
        if indexes:
            path = self.folder.parent / "kept"
            path.write_bytes(b"")
            data = LogSegmentData(
                log=FileSlice(path=str(path), position=0, size_bytes=0),
                log_crc32c=0,
                indexes=indexes,
                indexes_crc32c=crc32c(indexes),
            )
            await super().copy_log_segment_data(locator, data)


class DeletesOneBatch(LocalRemoteStorageManager):
    """Forgets what is over the limit of one request (Aiven's bug 650)."""

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        answers = await super().delete_log_segments(locators[:1_000])
        return (*answers, *(None for _ in locators[1_000:]))


class StopsAtTheFirstError(LocalRemoteStorageManager):
    """One segment that cannot be deleted keeps those after it."""

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        answers: list[RemoteStorageError | None] = []
        for locator in locators:
            failed = next((error for error in answers if error is not None), None)
            found = (failed,) if failed else await super().delete_log_segments([locator])
            answers.extend(found)
        return tuple(answers)


class LeavesManifestsWhenCancelled(LocalRemoteStorageManager):
    """A call that is cancelled has removed a log, and not its manifest."""

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        folder, _, stem = segment_stem(locators[-1]).rpartition("/")
        self._tree.remove_segment(folder, stem, (ObjectKind.LOG.value,), "delete from")
        await asyncio.sleep(10)  # longer than the case waits before it cancels
        return await super().delete_log_segments(locators)


class FailsOnAbsent(LocalRemoteStorageManager):
    """A delete of what is not there is an error."""

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        await self.fetch_indexes(locator)
        await super().delete_log_segment_data(locator)


class ListsOnePage(LocalRemoteStorageManager):
    """Forgets to ask for the next page."""

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        count = 0
        async for found in super().list_objects(cluster_id, partition):
            count += 1
            if count <= 1_000:
                yield found


class ListsByPrefix(LocalRemoteStorageManager):
    """Lists a partition by the beginning of its name: 1 has the objects of 10 too."""

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        async for found in super().list_objects(cluster_id):
            _, topic, number, _ = found.name.rsplit("/", 3) if "/" in found.name else ("",) * 4
            if partition is None or (
                topic.endswith(str(partition.topic_id))
                and number.startswith(str(partition.partition))
            ):
                yield found


class MissingIsAway(LocalRemoteStorageManager):
    """Says Unavailable of what is not there."""

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        try:
            return await super().read_manifest(locator)
        except NotFound as error:
            raise Unavailable(str(error)) from error


class BelievesSizes(LocalRemoteStorageManager):
    """Looks only whether the objects are there."""

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        found = await super().stat(segments)
        return tuple(
            replace(one, presence=Presence.COMPLETE) if one.presence is Presence.DIFFERENT else one
            for one in found
        )


class LastCreatorWins(LocalRemoteStorageManager):
    """Answers every creator its own identity."""

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        await super().create_identity(identity)
        return identity


class RaisesItsOwn(LocalRemoteStorageManager):
    """Lets an error through that is not the contract's."""

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        raise PermissionError("no")


WRONG: dict[type[LocalRemoteStorageManager], str] = {
    OffByOne: "range_in_the_middle",
    RefusesTheEnd: "range_outside_is_empty",
    TrustsItsSource: "flipped_bits_are_found_at_copy",
    KeepsTheFirst: "copy_may_be_repeated",
    ForgetsTheIndexes: "upload_fetch_delete",
    FailsOnAbsent: "delete_may_be_repeated",
    DeletesOneBatch: "batch_delete_of_many",
    StopsAtTheFirstError: "batch_delete_answers_for_each",
    LeavesManifestsWhenCancelled: "batch_delete_that_is_cancelled",
    ListsOnePage: "lists_many",
    ListsByPrefix: "lists_by_cluster_and_partition",
    MissingIsAway: "absent_objects_are_not_found",
    BelievesSizes: "stat_reports_different_sizes",
    LastCreatorWins: "identity_is_created_once",
    RaisesItsOwn: "copied_bytes_come_back",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
async def test_a_wrong_store_is_caught(
    wrong: type[LocalRemoteStorageManager], tmp_path: Path
) -> None:
    root, sources = tmp_path / "store", tmp_path / "sources"
    root.mkdir()
    sources.mkdir()
    for kind, expected in ((LocalRemoteStorageManager, Status.PASSED), (wrong, Status.FAILED)):
        store = kind(root)
        subject = Subject(manager=store, folder=sources, new_uuid=new_uuid, cluster_id="c")
        (outcome,) = await run_suite(subject, "direct", chosen((WRONG[wrong],), CASES))
        assert outcome.status is expected, outcome.detail
        await store.close()
