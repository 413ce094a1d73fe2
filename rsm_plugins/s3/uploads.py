"""Uploads a log in parallel parts; it becomes visible only when every byte was proved.

The source is read once, in order. The server verifies each part by its own CRC-32C, and the whole
log is compared with the CRC-32C of its plan before the upload is completed. Every failure,
cancellation included, ends in an abort, so that no part is paid for. Memory is bounded by the
permits: a part is read only when it may be sent.
"""

import asyncio
import base64
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from kip405.crc import crc32c, joined_crc32c
from kip405.errors import Corrupt, Internal, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.segments import LogSegmentData
from rsm_plugins.event_log import EventLog
from rsm_plugins.files.segment_files import source_pieces
from rsm_plugins.s3.bodies import Body, Pieces
from rsm_plugins.s3.calls import (
    backoff_seconds,
    first_of,
    to_its_end,
    together,
)
from rsm_plugins.s3.errors import code_of
from rsm_plugins.s3.objects import (
    BODY_PATIENCE,
    CHECKSUM_ALGORITHM,
    Objects,
    UserMetadata,
    broken_off,
    checksum_text,
)
from rsm_plugins.threads import FileThreads

PARTS_MAX = 10_000
ABORTS_MAX = 5
ABORT_SECONDS = 20.0
SETTLE_SECONDS = 0.5
_WHOLE_NAMES_ONLY = "minio"
"""A server that calls itself so lists the uploads of a whole name, and none of a shorter prefix."""
log = EventLog(__name__)
Begun = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part that the server has; part numbers begin with 1."""

    number: int
    etag: str
    checksum: int

    def fields(self) -> dict[str, Any]:
        """The part in the request that completes the upload."""
        return {
            "PartNumber": self.number,
            "ETag": self.etag,
            "ChecksumCRC32C": checksum_text(self.checksum),
        }


class SourceReader:
    """Reads a log in order and keeps the CRC-32C of all bytes that were read; reads run in
    threads.
    """

    def __init__(self, data: LogSegmentData, threads: FileThreads) -> None:
        self._data = data
        self._threads = threads
        self._position = 0
        self._whole = 0

    async def next(self, size_bytes: int) -> tuple[Pieces, int]:
        """The next bytes and their own CRC-32C; Fenced if the file is gone or cut short."""
        size_bytes = min(size_bytes, self._data.log.size_bytes - self._position)
        return await self._threads.run(self._read, size_bytes)

    def _read(self, size_bytes: int) -> tuple[Pieces, int]:
        """Read and checksum piece by piece: each is still in the processor's cache then."""
        part, pieces = 0, []
        for piece in source_pieces(self._data.log, self._position, size_bytes):
            part = crc32c(piece, part)
            pieces.append(piece)
        self._position += size_bytes
        self._whole = joined_crc32c(self._whole, part, size_bytes)
        return Pieces(pieces), part

    def prove(self) -> None:
        """Corrupt unless the bytes that were read are those of the copy's plan."""
        check_planned(self._data, self._whole)


def check_planned(data: LogSegmentData, whole: int) -> None:
    """Corrupt unless the CRC-32C of what was read is that of the copy's plan."""
    if whole != data.log_crc32c:
        raise Corrupt(
            f"the bytes copied from {data.log.path} have CRC-32C {whole:08x}, not "
            f"{data.log_crc32c:08x}"
        )


class LogBody(Body):
    """A log that is sent in one request, read while it is sent. Its last piece goes only where the
    whole has the CRC-32C of the plan, so a server never gets another log whole. See Body.
    """

    def __init__(self, data: LogSegmentData, threads: FileThreads) -> None:
        self._data = data
        self._threads = threads

    def __len__(self) -> int:
        return self._data.log.size_bytes

    def pieces(self) -> Iterator[bytes]:
        """See Body; Corrupt, or Fenced where the file is gone or cut short."""
        whole, left = 0, len(self)
        for piece in source_pieces(self._data.log, 0, left):
            whole = crc32c(piece, whole)
            left -= len(piece)
            if not left:
                check_planned(self._data, whole)
            yield piece

    async def for_aiohttp(self) -> Pieces:
        """See Body; such a log is not larger than a part."""
        return Pieces(await self._threads.run(lambda: list(self.pieces())))


class Uploads:
    """Uploads in parts, and the removal of unfinished uploads."""

    def __init__(
        self, objects: Objects, threads: FileThreads, *, part_size_bytes: int, concurrency: int
    ) -> None:
        self._objects = objects
        self._threads = threads
        self._part_size_bytes = part_size_bytes
        self._permits = asyncio.Semaphore(concurrency)
        self._lists_whole_names_only = False

    def of(self, objects: Objects) -> "Uploads":
        """The same of other objects, with the same permits."""
        found = copy(self)
        found._objects = objects
        return found

    def body_of(self, data: LogSegmentData) -> LogBody:
        """The body of a log that is sent in one request; see `permits`."""
        return LogBody(data, self._threads)

    @property
    def permits(self) -> asyncio.Semaphore:
        """One permit is needed for each part in memory, and for each log on its way."""
        return self._permits

    async def upload(
        self, name: str, data: LogSegmentData, metadata: UserMetadata, begun: Begun | None = None
    ) -> "Upload":
        """Send all parts and prove them; nothing is visible yet. `begun` gets the id of the upload
        before the first part is sent.
        """

        async def send(upload: "Upload") -> None:
            if begun is not None:
                await begun(upload.id)
            await self._send(upload, data)

        return await self._upload(name, metadata, send)

    async def upload_parts(
        self, name: str, parts: Sequence[tuple[Body, int]], metadata: UserMetadata
    ) -> "Upload":
        """Send bodies, each with its CRC-32C, as the parts of an object; nothing is visible yet.
        The bodies prove themselves.
        """
        return await self._upload(name, metadata, lambda upload: self._send_parts(upload, parts))

    async def _upload(
        self, name: str, metadata: UserMetadata, send: Callable[["Upload"], Awaitable[None]]
    ) -> "Upload":
        upload = Upload(self._objects, name)
        try:
            await upload.begin(metadata)
            await send(upload)
        except BaseException:
            await upload.abort()
            raise
        return upload

    async def _send_parts(self, upload: "Upload", parts: Sequence[tuple[Body, int]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, (body, checksum) in enumerate(parts, 1):
                    await self._permits.acquire()
                    sending = group.create_task(upload.send(number, body, checksum))
                    sending.add_done_callback(lambda _task: self._permits.release())
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors

    async def _send(self, upload: "Upload", data: LogSegmentData) -> None:
        reader = SourceReader(data, self._threads)
        size_bytes = part_size(data.log.size_bytes, self._part_size_bytes)
        count = max(1, -(-data.log.size_bytes // size_bytes))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(1, count + 1):
                    await self._permits.acquire()
                    part = await self._next(reader, size_bytes)
                    sending = group.create_task(upload.send(number, *part))
                    # Not in a finally of the task: a task that is cancelled before it began never
                    # runs it.
                    sending.add_done_callback(lambda _task: self._permits.release())
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors
        reader.prove()

    async def _next(self, reader: SourceReader, size_bytes: int) -> tuple[Pieces, int]:
        try:
            return await reader.next(size_bytes)
        except BaseException:
            self._permits.release()
            raise

    async def abort_all(self, folder: str, is_wanted: Callable[[str, int, int], bool]) -> int:
        """Abort unfinished uploads of names that begin with `folder`; how many.

        `is_wanted` gets the name, when the upload began, and the time now, both by the server's
        clock in ms.
        """
        aborted = 0
        async for answer in self._pages(folder):
            now_ms = _answer_ms(answer)
            for item in answer.get("Uploads", ()):
                began_ms = round(item["Initiated"].timestamp() * 1000)
                name = self._objects.name(item["Key"])
                if is_wanted(name, began_ms, now_ms):
                    await Upload(self._objects, name, item["UploadId"]).abort_now()
                    aborted += 1
        return aborted

    async def abort_of(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        """Abort the unfinished uploads of exactly these names; the errors by name.

        The names of one folder are found by one listing of what they begin with, where the server
        lists so.
        """
        folders: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            folders[name.rpartition("/")[0]].append(name)
        found = await together(self._abort_in_folder(part) for part in folders.values())
        return {name: error for kept in found for name, error in kept.items()}

    async def _abort_in_folder(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        if not self._lists_whole_names_only:
            shared = os.path.commonprefix(names)  # noqa: RUF071 - what S3 calls a prefix
            kept = await self._abort_found(shared, frozenset(names))
            if len(names) == 1 or not self._lists_whole_names_only:
                return kept
        each = await together(self._abort_found(name, frozenset((name,))) for name in names)
        return {name: error for kept in each for name, error in kept.items()}

    async def _abort_found(
        self, prefix: str, wanted: frozenset[str]
    ) -> dict[str, RemoteStorageError]:
        kept: dict[str, RemoteStorageError] = {}
        try:
            async for answer in self._pages(prefix):
                for item in answer.get("Uploads", ()):
                    name = self._objects.name(item["Key"])
                    if name in wanted:
                        try:
                            await Upload(self._objects, name, item["UploadId"]).abort_now()
                        except RemoteStorageError as error:
                            kept[name] = error
        except Invalid:
            return kept  # a server that cannot list uploads has none either
        except RemoteStorageError as error:
            return dict.fromkeys(wanted, error)
        return kept

    async def _pages(self, prefix: str) -> AsyncIterator[Any]:
        """The answers that list the unfinished uploads of names that begin with the prefix."""
        markers: dict[str, str] = {}
        while True:
            answer = await self._list(prefix, markers)
            server = str(answer["ResponseMetadata"]["HTTPHeaders"].get("server", ""))
            self._lists_whole_names_only |= server.lower().startswith(_WHOLE_NAMES_ONLY)
            yield answer
            if not answer.get("IsTruncated"):
                return
            following = {
                "KeyMarker": answer.get("NextKeyMarker", ""),
                "UploadIdMarker": answer.get("NextUploadIdMarker", ""),
            }
            if not all(following.values()) or following == markers:
                raise broken_off("ListMultipartUploads", self._objects.location(prefix))
            markers = following

    async def _list(self, folder: str, markers: dict[str, str]) -> Any:
        async def request(client: Any) -> Any:
            return await client.list_multipart_uploads(
                Bucket=self._objects.bucket, Prefix=self._objects.key(folder), **markers
            )

        location = self._objects.location(folder)
        return await self._objects.calls.run("ListMultipartUploads", location, request)


class Upload:
    """One upload of one object: begin, send parts, then complete or abort."""

    def __init__(self, objects: Objects, name: str, upload_id: str | None = None) -> None:
        self._objects = objects
        self._name = name
        self._id = upload_id
        self._parts: dict[int, Part] = {}
        self._cut_off = False

    @property
    def id(self) -> str:
        """The server's id of an upload that has begun."""
        if self._id is None:
            raise Internal(f"{self._objects.location(self._name)}: the upload has not begun")
        return self._id

    async def begin(self, metadata: UserMetadata) -> None:
        """Request an upload; one that was created although the caller was cancelled is known
        too.
        """
        await to_its_end(self._begin(metadata), self._objects.calls.call_seconds)

    async def _begin(self, metadata: UserMetadata) -> None:
        options = self._objects.creation(metadata, data=True)

        async def request(client: Any) -> Any:
            return await client.create_multipart_upload(
                **self._target(), ChecksumAlgorithm=CHECKSUM_ALGORITHM, **options
            )

        answer = await self._run("CreateMultipartUpload", request)
        self._id = str(answer["UploadId"])

    async def send(self, number: int, body: Body, checksum: int) -> None:
        """Send one part; it replaces one of the same number."""

        async def request(client: Any) -> Any:
            return await client.upload_part(
                **self._target(),
                UploadId=self._id,
                PartNumber=number,
                Body=body,
                ChecksumCRC32C=checksum_text(checksum),
            )

        try:
            answer = await self._run("UploadPart", request, patience=BODY_PATIENCE)
        except BaseException:
            self._cut_off = True
            raise
        self._parts[number] = Part(number=number, etag=str(answer["ETag"]), checksum=checksum)

    async def complete(self) -> None:
        """Make the object visible; an upload that was completed by a try whose answer was lost is
        success.
        """
        await self._complete(self._check_visible)

    async def complete_version(self) -> str | None:
        """The same for an object that has versions of others: the version's id, None where the
        answer was lost or has none. The caller finds out then whether there is one.
        """

        async def believe(client: Any, error: ClientError) -> None:
            """Which version an object is now proves nothing of this upload."""

        return await self._complete(believe)

    async def _complete(self, check: Callable[[Any, ClientError], Awaitable[None]]) -> str | None:
        tried = 0
        parts = [self._parts[number].fields() for number in sorted(self._parts)]

        async def request(client: Any) -> str | None:
            nonlocal tried
            tried += 1
            try:
                answer = await client.complete_multipart_upload(
                    **self._target(), UploadId=self._id, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload" or tried == 1:
                    raise
                await check(client, error)
                return None
            return None if answer.get("VersionId") is None else str(answer["VersionId"])

        completed: str | None = await self._run("CompleteMultipartUpload", request)
        return completed

    async def _check_visible(self, client: Any, error: ClientError) -> None:
        """Raise the error unless the object there has the checksum of our parts."""
        try:
            found = await client.head_object(**self._target(), ChecksumMode="ENABLED")
        except ClientError:
            raise error from None
        if found.get("ChecksumCRC32C") != self.composite_checksum():
            raise error

    def composite_checksum(self) -> str:
        """S3's checksum of checksums, as the completed object has it."""
        ordered = [self._parts[number].checksum for number in sorted(self._parts)]
        joined = b"".join(checksum.to_bytes(4) for checksum in ordered)
        digest = base64.b64encode(crc32c(joined).to_bytes(4)).decode("ascii")
        return f"{digest}-{len(ordered)}"

    async def abort(self) -> None:
        """Abort the upload, also if the caller is cancelled; a failure is only logged, because the
        sweep aborts it later.
        """
        if self._id is not None:
            await to_its_end(self._abort_quietly(), ABORT_SECONDS)

    async def _abort_quietly(self) -> None:
        try:
            async with asyncio.timeout(ABORT_SECONDS):
                await self.abort_now()
        except (RemoteStorageError, TimeoutError) as error:
            log.warning(
                "s3_upload_left", location=self._objects.location(self._name), cause=str(error)
            )

    async def abort_now(self) -> None:
        """Abort until the upload is gone. A part that the server had just received brings an upload
        back, so after parts were cut off the upload is checked once more a little later.
        """
        for attempt in range(1, ABORTS_MAX + 1):
            await self._abort_once()
            if self._cut_off:
                self._cut_off = False
                await self._objects.calls.pause(SETTLE_SECONDS)
            if not await self._is_there():
                return
            await self._objects.calls.pause(backoff_seconds(attempt))
        raise Unavailable(f"{self._objects.location(self._name)}: the upload does not go away")

    async def _abort_once(self) -> None:
        async def request(client: Any) -> None:
            try:
                await client.abort_multipart_upload(**self._target(), UploadId=self._id)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

        await self._run("AbortMultipartUpload", request)

    async def _is_there(self) -> bool:
        async def request(client: Any) -> bool:
            try:
                await client.list_parts(**self._target(), UploadId=self._id, MaxParts=1)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise
                return False
            return True

        try:
            return bool(await self._run("ListParts", request))
        except (Invalid, NotFound):
            return False  # a server that cannot list parts: its abort is believed

    def _target(self) -> dict[str, str]:
        return self._objects.target(self._name)

    async def _run(self, operation: str, request: Any, *, patience: int = 1) -> Any:
        location = self._objects.location(self._name)
        return await self._objects.calls.run(operation, location, request, patience=patience)


def part_size(log_bytes: int, wanted_bytes: int) -> int:
    """The part size for a log, larger than wanted where there would be more than 10000 parts."""
    return max(wanted_bytes, -(-log_bytes // PARTS_MAX))


def _answer_ms(answer: Any) -> int:
    """When the server answered, by its own clock."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    try:
        return round(parsedate_to_datetime(headers["date"]).timestamp() * 1000)
    except (KeyError, ValueError) as error:
        raise Unavailable("the server's answer has no date: ages are not known") from error
