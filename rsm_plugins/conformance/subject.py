"""What a conformance case works with: a manager under test, segments to store, and checks.

A failed check is a ConformanceFailure whose message says what was expected. `Wire` has the two
services of a plugin, for cases that send what this product's client would never send.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from kip405.contracts import (
    ExpectedSegment,
    IndexType,
    RemoteStorageManager,
    SegmentPresence,
    StoreIdentity,
)
from kip405.crc import ByteBuffer, crc32c
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
from rsm_plugins.conformance.logs import LEAST_BYTES, random_batches
from rsm_plugins.files.durable import read_at
from rsm_plugins.layout.keys import data_objects_of
from rsm_plugins.layout.stored import ObjectContent, encode_contents
from rsm_plugins.v1 import storage_pb2 as pb

if TYPE_CHECKING:
    from rsm_plugins.v1.identity_pb2_grpc import IdentityAsyncStub
    from rsm_plugins.v1.storage_pb2_grpc import StorageAsyncStub


class ConformanceFailure(Exception):
    """A guarantee of the contract that did not hold."""


class CaseSkipped(Exception):
    """A case that does not apply here; the message is the reason."""


def check(condition: bool, message: str) -> None:
    """ConformanceFailure with the message unless the condition holds."""
    if not condition:
        raise ConformanceFailure(message)


def check_equal(found: object, expected: object, what: str) -> None:
    """The same for equality; long values are cut."""
    check(found == expected, f"{what}: {found!r:.200} instead of {expected!r:.200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment to copy, with the bytes that must be returned."""

    locator: SegmentLocator
    data: LogSegmentData
    log: bytes


CALL_SECONDS = 60.0


CopyPart = pb.CopyLogSegmentDataRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The two services of a plugin, and the metadata with the name of a principal."""

    identity: "IdentityAsyncStub"
    storage: "StorageAsyncStub"
    principal: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("rlm-principal", self.principal),)

    def open_copy(self) -> Any:
        """A CopyLogSegmentData call to write to; a stream-unary call of grpc.aio."""
        return self.storage.CopyLogSegmentData(timeout=CALL_SECONDS, metadata=self.metadata)

    async def copy(self, parts: Iterable[CopyPart]) -> grpc.StatusCode:
        """Send a whole stream; the status of the answer."""
        call = self.open_copy()
        try:
            for part in parts:
                await call.write(part)
            await call.done_writing()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, RuntimeError, ValueError):
            pass  # answered before everything was sent: the status below has the reason
        return await code_of(call)


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """The status of a call with one answer."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


MIB = 1024 * 1024
SMALL_LOG_BYTES = 10_007
AT_ONCE = 50
MANY_OBJECTS = 1003  # more than one page of any store
PART_BYTES = 5 * MIB  # the smallest part of a multipart upload to S3
_E = TypeVar("_E", bound=RemoteStorageError)

SECTIONS: dict[IndexType, bytes] = {
    IndexType.OFFSET: bytes(range(64)),
    IndexType.TIMESTAMP: bytes(range(48)),
    IndexType.PRODUCER_SNAPSHOT: b"",
    IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    IndexType.ABORTED_TRANSACTIONS: bytes(24),
}


async def fails(kind: type[_E], call: Awaitable[object], what: str) -> _E:
    """The error of a call that must fail with this kind."""
    try:
        answer = await call
    except kind as error:
        return error
    except RemoteStorageError as error:
        raise ConformanceFailure(
            f"{what}: {error.kind.name} ({error}), not {kind.__name__}"
        ) from error
    raise ConformanceFailure(
        f"{what}: answered {answer!r:.80} instead of failing with {kind.__name__}"
    )


class StoreFaults(Protocol):
    """Changes to a store behind the manager's back; the tests of the stores provide them."""

    def move_away(self) -> None: ...

    def bring_back(self) -> None: ...

    def remove(self, name: str) -> None:
        """Remove one object by its name below the prefix."""
        ...

    def truncate(self, name: str, size_bytes: int) -> None: ...

    def names(self) -> list[str]:
        """Every object of the store, and what unfinished copies left: temporary files, uploads."""
        ...


@dataclass(slots=True, kw_only=True)
class Subject:
    """A manager under test; everything is written below a cluster id of its own, and `clean_up`
    removes it.

    `lacking`: optional capability -> why it is missing (`inspect`, `batch_delete`). `sweep` takes
    a grace in ms. `many` is a number of objects that counts as many, `part_bytes` the size at which
    the store may split a log into parts, `secrets` what no error may show. `layout` is that of
    every segment; `answered` is what copies said that they stored, by segment.
    """

    manager: RemoteStorageManager
    folder: Path
    new_uuid: Callable[[], Uuid]
    cluster_id: str
    faults: StoreFaults | None = None
    wire: "Wire | None" = None
    sweep: Callable[[int], Awaitable[int]] | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    many: int = MANY_OBJECTS
    part_bytes: int = PART_BYTES
    secrets: tuple[str, ...] = ()
    layout: Layout = Layout.KAFKA
    made: list[SegmentLocator] = field(default_factory=list)
    answered: dict[Uuid, bytes] = field(default_factory=dict)

    def needs(self, capability: str) -> None:
        """CaseSkipped where the store lacks an optional capability."""
        if capability in self.lacking:
            raise CaseSkipped(self.lacking[capability])

    def partition(self, topic: str = "topic", number: int = 0) -> TopicIdPartition:
        """A partition of a topic with a fresh id."""
        return TopicIdPartition(topic_id=self.new_uuid(), topic=topic, partition=number)

    def locator(
        self,
        partition: TopicIdPartition,
        start_offset: int = 0,
        custom_metadata: bytes | None = None,
    ) -> SegmentLocator:
        """A fresh copy attempt of a segment, noted for the clean-up."""
        if self.layout is not Layout.KAFKA:
            custom_metadata = self._in_layout(custom_metadata)
        locator = SegmentLocator(
            cluster_id=self.cluster_id,
            segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=self.new_uuid()),
            start_offset=start_offset,
            custom_metadata=custom_metadata,
        )
        self.made.append(locator)
        return locator

    def segment(
        self,
        partition: TopicIdPartition | None = None,
        *,
        start_offset: int = 0,
        log_size_bytes: int = SMALL_LOG_BYTES,
        sections: dict[IndexType, bytes] | None = None,
        custom_metadata: bytes | None = None,
    ) -> StoredSegment:
        """A segment whose log is in the middle of a file, like a real log that is still being
        written.
        """
        if self.layout is Layout.KAFKA:
            log = os.urandom(log_size_bytes)
        else:
            log = random_batches(log_size_bytes, start_offset)
        locator = self.locator(partition or self.partition(), start_offset, custom_metadata)
        path = self.folder / f"{locator.segment_id.id}.source"
        path.write_bytes(b"before" + log + b"after")
        indexes = build_indexes_object(SECTIONS if sections is None else sections)
        data = LogSegmentData(
            log=FileSlice(path=str(path), position=len(b"before"), size_bytes=len(log)),
            log_crc32c=crc32c(log),
            indexes=indexes,
            indexes_crc32c=crc32c(indexes),
        )
        return StoredSegment(locator=locator, data=data, log=log)

    def _in_layout(self, custom_metadata: bytes | None) -> bytes:
        known = CustomMetadata(store_id=Uuid(bytes(16)))
        if custom_metadata is not None:
            known = CustomMetadata.decode(custom_metadata)
        return replace(known, layout=self.layout).encode()

    @property
    def least_log_bytes(self) -> int:
        """The smallest log that is not empty."""
        return 1 if self.layout is Layout.KAFKA else LEAST_BYTES

    async def copy(self, segment: StoredSegment) -> None:
        """Copy, and note the answer."""
        answer = await self.manager.copy_log_segment_data(segment.locator, segment.data)
        self.answered[segment.locator.segment_id.id] = answer

    def expected(self, segment: StoredSegment) -> ExpectedSegment:
        """What stat is asked for a segment."""
        return self.expected_of(segment.locator, len(segment.log), len(segment.data.indexes))

    def expected_of(
        self, locator: SegmentLocator, log_size_bytes: int, indexes_size_bytes: int
    ) -> ExpectedSegment:
        """The same of any locator. In other layouts than Kafka's the sizes of objects are those
        that the copy answered; 0 where there was none.
        """
        if locator.custom_metadata is not None and self.layout is not Layout.KAFKA:
            nothing = [ObjectContent(size_bytes=0, crc32c=0)] * len(data_objects_of(locator))
            plugin = self.answered.get(locator.segment_id.id) or encode_contents(nothing)
            custom = replace(CustomMetadata.decode(locator.custom_metadata), plugin=plugin)
            locator = replace(locator, custom_metadata=custom.encode())
        return ExpectedSegment(
            locator=locator, log_size_bytes=log_size_bytes, indexes_size_bytes=indexes_size_bytes
        )

    async def complete(self, segment: StoredSegment) -> None:
        """Copy with a manifest."""
        await self.copy(segment)
        await self.manager.write_manifest(segment.locator, b'{"v":1}')

    async def fetch(self, locator: SegmentLocator, start: int, end: int) -> bytes:
        """The range as bytes, read from the slice if the answer is one."""
        return read_answer(
            await self.manager.fetch_log_segment(locator, ByteRange(start=start, end=end))
        )

    async def presence(self, segment: StoredSegment) -> SegmentPresence:
        found = await self.manager.stat([self.expected(segment)])
        check_equal(len(found), 1, "answers of stat for one segment")
        return found[0]

    async def names(self, partition: TopicIdPartition | None = None) -> list[str]:
        """Names listed below our cluster id."""
        return [found.name async for found in self.manager.list_objects(self.cluster_id, partition)]

    async def ensure_identity(self) -> StoreIdentity:
        """The store's identity, created if there is none."""
        identity = StoreIdentity(store_id=self.new_uuid(), cluster_id=self.cluster_id, created_ms=1)
        return await self.manager.create_identity(identity)

    async def clean_up(self) -> None:
        """Remove all objects that were created, some at a time."""
        for start in range(0, len(self.made), AT_ONCE):
            part = self.made[start : start + AT_ONCE]
            await asyncio.gather(*(self.manager.delete_log_segment_data(one) for one in part))
        self.made.clear()


async def pause(seconds: float) -> None:
    """Wait in real time, because the subject is another process, which no fake clock controls."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()


async def in_parts(calls: list[Callable[[], Awaitable[object]]]) -> None:
    """Run the calls, a bounded number at a time."""
    for start in range(0, len(calls), AT_ONCE):
        await asyncio.gather(*(call() for call in calls[start : start + AT_ONCE]))


def read_answer(answer: ByteBuffer | FileSlice) -> bytes:
    """The bytes of a fetch, sent or handed over as a slice."""
    if not isinstance(answer, FileSlice):
        return bytes(answer)
    descriptor = os.open(answer.path, os.O_RDONLY)
    try:
        return read_at(descriptor, answer.position, answer.size_bytes)
    finally:
        os.close(descriptor)
