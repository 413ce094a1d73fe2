"""What is done to a store while a network fails: each operation checks its own outcome.

`requests` are the S3 requests the fault is put on (none: whichever comes first).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kip405.contracts import Presence
from rsm_plugins.conformance.subject import PART_BYTES, StoredSegment, Subject

MANIFEST = b'{"v":1}'
WHOLE = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`sends`: its request has a body; `receives`: its answer has one. `stored`: the segment is
    there before.
    """

    name: str
    run: Callable[[Subject, StoredSegment], Awaitable[None]]
    requests: tuple[str, ...] = ()
    sends: bool = False
    receives: bool = False
    stored: bool = True
    log_size_bytes: int = 10_007


async def _copy(subject: Subject, segment: StoredSegment) -> None:
    await subject.copy(segment)
    assert await subject.fetch(segment.locator, 0, WHOLE) == segment.log
    assert await subject.manager.fetch_indexes(segment.locator) == segment.data.indexes


async def _write_manifest(subject: Subject, segment: StoredSegment) -> None:
    await subject.manager.write_manifest(segment.locator, MANIFEST)
    assert await subject.manager.read_manifest(segment.locator) == MANIFEST


async def _fetch(subject: Subject, segment: StoredSegment) -> None:
    assert await subject.fetch(segment.locator, 1_000, 9_000) == segment.log[1_000:9_000]


async def _indexes(subject: Subject, segment: StoredSegment) -> None:
    assert await subject.manager.fetch_indexes(segment.locator) == segment.data.indexes


async def _read_manifest(subject: Subject, segment: StoredSegment) -> None:
    assert await subject.manager.read_manifest(segment.locator) == MANIFEST


async def _read_identity(subject: Subject, segment: StoredSegment) -> None:
    found = await subject.manager.read_identity()
    assert found is not None
    assert found.created_ms == 1


async def _stat(subject: Subject, segment: StoredSegment) -> None:
    assert (await subject.presence(segment)).presence is Presence.COMPLETE


async def _list(subject: Subject, segment: StoredSegment) -> None:
    names = await subject.names(segment.locator.segment_id.topic_id_partition)
    assert len(names) == 3


async def _delete(subject: Subject, segment: StoredSegment) -> None:
    await subject.manager.delete_log_segment_data(segment.locator)
    assert await subject.names(segment.locator.segment_id.topic_id_partition) == []


async def _delete_many(subject: Subject, segment: StoredSegment) -> None:
    (error,) = await subject.manager.delete_log_segments([segment.locator])
    if error is not None:
        raise error
    assert await subject.names(segment.locator.segment_id.topic_id_partition) == []


LARGE = PART_BYTES + 1_000  # two parts
GET = ("GetObject",)
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="copy_begin",
        run=_copy,
        requests=("CreateMultipartUpload",),
        stored=False,
        log_size_bytes=LARGE,
    ),
    Operation(
        name="copy_part",
        run=_copy,
        requests=("UploadPart",),
        sends=True,
        stored=False,
        log_size_bytes=LARGE,
    ),
    Operation(
        name="copy_complete",
        run=_copy,
        requests=("CompleteMultipartUpload",),
        stored=False,
        log_size_bytes=LARGE,
    ),
    Operation(name="copy_small", run=_copy, requests=("PutObject",), sends=True, stored=False),
    Operation(name="write_manifest", run=_write_manifest, requests=("PutObject",)),
    Operation(name="fetch", run=_fetch, requests=GET, receives=True),
    Operation(name="indexes", run=_indexes, requests=GET, receives=True),
    Operation(name="manifest", run=_read_manifest, requests=GET, receives=True),
    Operation(name="identity", run=_read_identity, requests=GET, receives=True),
    Operation(name="stat", run=_stat),
    Operation(name="list", run=_list, requests=("ListObjects",), receives=True),
    Operation(name="delete", run=_delete),
    Operation(name="delete_many", run=_delete_many, requests=("DeleteObjects",), sends=True),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
