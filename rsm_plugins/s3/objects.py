"""Single objects of the store by name: reads, writes, checks, lists and removes them.

The length of every body is checked; the server verifies what is written by its CRC-32C. User
metadata describes the objects for people and tools that see only the bucket: everything in it is
also in the object's name or in the manifest, and no code of this product reads it, but for whose
an object is where its key does not say so (pinterest.py). This module must not know what a segment
is.
"""

import base64
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError, FlexibleChecksumError, IncompleteReadError

from kip405.contracts import StoredObject
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import (
    Corrupt,
    ErrorKind,
    Invalid,
    NotFound,
    RemoteStorageError,
    Unavailable,
)
from kip405.process import software_version
from kip405.segments import ByteRange, SegmentLocator
from rsm_plugins.layout.keys import with_prefix
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.s3.bodies import Body
from rsm_plugins.s3.calls import Calls, together
from rsm_plugins.s3.errors import code_of, error_of_s3, status_of, verdict_of
from rsm_plugins.s3.settings import S3Settings

UserMetadata = dict[str, str]


def segment_metadata(locator: SegmentLocator, end_offset: int | None) -> UserMetadata:
    """User metadata of a segment's object; offsets are Kafka's: the end is inclusive, absent if
    unknown.
    """
    partition = locator.segment_id.topic_id_partition
    found = {
        "rlm-cluster": locator.cluster_id,
        "rlm-topic-id": str(partition.topic_id),
        "rlm-partition": str(partition.partition),
        "rlm-start-offset": str(locator.start_offset),
        "rlm-version": software_version(),
    }
    if end_offset is not None:
        found["rlm-end-offset"] = str(end_offset)
    return found


def end_offset_of(manifest: bytes) -> int | None:
    """The end offset in a manifest; None if the manifest cannot be parsed, which only its writer
    can correct.
    """
    try:
        return Manifest.parse(manifest).end_offset
    except Corrupt:
        return None


def checksum_text(crc32c: int) -> str:
    """A CRC-32C as S3 writes it: base64 of four bytes, most significant first."""
    return base64.b64encode(crc32c.to_bytes(4)).decode("ascii")


LIST_KEYS_MAX = 1000
DELETE_KEYS_MAX = 1000
BODY_PATIENCE = 4
"""A body on its way up shares the line with the others: it gets so many times longer for a try."""

CHECKSUM_ALGORITHM = "CRC32C"
_CONDITION_FAILED = ("PreconditionFailed", "412")
_PAST_THE_END = ("InvalidRange", "416")
_OPEN_END = 1 << 62


class AlreadyThere(Exception):
    """A conditional write found an object under this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer of a listing; `folders` end with a slash, names are below the prefix."""

    objects: tuple[StoredObject, ...]
    folders: tuple[str, ...]
    token: str | None


class Objects:
    """Objects of one bucket below one prefix."""

    def __init__(self, calls: Calls, settings: S3Settings) -> None:
        self.calls = calls
        self._bucket = settings.bucket
        self._prefix = settings.prefix
        self._storage_class = settings.storage_class
        self._encryption = encryption_of(settings)
        self._deletes_many = True

    def key(self, name: str) -> str:
        """The key of a name."""
        return with_prefix(self._prefix, name)

    def name(self, key: str) -> str:
        """The name of a key below the prefix."""
        return key.removeprefix(f"{self._prefix}/") if self._prefix else key

    def location(self, name: str) -> str:
        """Bucket and key, for messages."""
        return f"s3://{self._bucket}/{self.key(name)}"

    def target(self, name: str, version: str | None = None) -> dict[str, str]:
        """The arguments that identify an object, or one version of it."""
        found = {"Bucket": self._bucket, "Key": self.key(name)}
        return found if version is None else {**found, "VersionId": version}

    @property
    def bucket(self) -> str:
        return self._bucket

    def creation(self, metadata: UserMetadata | None, *, data: bool) -> dict[str, Any]:
        """Arguments of a new object; `data`: the storage class of the settings applies to it."""
        options: dict[str, Any] = dict(self._encryption)
        if metadata:
            options["Metadata"] = metadata
        if data and self._storage_class:
            options["StorageClass"] = self._storage_class
        return options

    async def read(self, name: str, version: str | None = None) -> bytes:
        """The whole object, or one version of it, proved by the CRC-32C it was written with;
        NotFound.
        """

        async def request(client: Any) -> bytes:
            answer = await client.get_object(**self.target(name, version), ChecksumMode="ENABLED")
            body = bytes(await _body(answer, int(answer["ContentLength"]), self.location(name)))
            _prove(body, answer.get("ChecksumCRC32C"))
            return body

        return await self.calls.run("GetObject", self.location(name), request)

    async def read_range(
        self, name: str, wanted: ByteRange, version: str | None = None
    ) -> ByteBuffer:
        """The range clipped to the object's size, of one version if one is given; NotFound."""
        last = max(wanted.start, min(wanted.end, _OPEN_END) - 1)
        header = f"bytes={wanted.start}-{last}"

        async def request(client: Any) -> ByteBuffer:
            try:
                answer = await client.get_object(**self.target(name, version), Range=header)
            except ClientError as error:
                if code_of(error) in _PAST_THE_END or status_of(error) == 416:
                    return b""
                raise
            size_bytes = _answered_size(answer, wanted.start, last)
            return await _body(answer, size_bytes, self.location(name))

        found = await self.calls.run("GetObject", self.location(name), request)
        return found if wanted.size_bytes else b""

    async def write(
        self,
        name: str,
        body: bytes | Body,
        *,
        metadata: UserMetadata | None = None,
        checksum: int,
        data: bool = False,
        only_if_absent: bool = False,
    ) -> None:
        """Write an object whole; AlreadyThere if it exists and must not be overwritten."""
        options = self.creation(metadata, data=data)
        options["ChecksumCRC32C"] = checksum_text(checksum)
        if only_if_absent:
            options["IfNoneMatch"] = "*"

        async def request(client: Any) -> bool:
            try:
                await client.put_object(**self.target(name), Body=body, **options)
            except ClientError as error:
                if only_if_absent and code_of(error) in _CONDITION_FAILED:
                    return False
                raise
            return True

        written = await self.calls.run(
            "PutObject", self.location(name), request, patience=BODY_PATIENCE
        )
        if not written:
            raise AlreadyThere(self.location(name))

    async def size_of(self, name: str) -> int | None:
        """Size in bytes, None if a HEAD is answered 404: the object or the bucket is missing."""

        async def request(client: Any) -> int:
            answer = await client.head_object(**self.target(name))
            return int(answer["ContentLength"])

        try:
            return await self.calls.run("HeadObject", self.location(name), request)
        except NotFound:
            return None

    async def page(
        self,
        folder: str,
        *,
        token: str | None = None,
        after: str = "",
        delimiter: str = "",
        most: int = LIST_KEYS_MAX,
    ) -> Page:
        """One page of the names that begin with `folder`, in the order of names. Unavailable if
        there are more and the server does not say how to continue.
        """
        options: dict[str, Any] = {"Bucket": self._bucket, "MaxKeys": most}
        options["Prefix"] = self.key(folder) if folder else self._below_prefix()
        if token is not None:
            options["ContinuationToken"] = token
        elif after:
            options["StartAfter"] = self.key(after)
        if delimiter:
            options["Delimiter"] = delimiter

        async def request(client: Any) -> Any:
            return await client.list_objects_v2(**options)

        answer = await self.calls.run("ListObjectsV2", self.location(folder), request)
        more = answer.get("NextContinuationToken") if answer.get("IsTruncated") else None
        if answer.get("IsTruncated") and more in (None, "", token):
            raise broken_off("ListObjectsV2", self.location(folder))
        return Page(
            objects=tuple(self._stored(item) for item in answer.get("Contents", ())),
            folders=tuple(self.name(item["Prefix"]) for item in answer.get("CommonPrefixes", ())),
            token=more,
        )

    async def pages(self, folder: str, *, delimiter: str = "") -> AsyncIterator[Page]:
        """All pages."""
        token: str | None = None
        while True:
            page = await self.page(folder, token=token, delimiter=delimiter)
            yield page
            token = page.token
            if token is None:
                return

    async def remove(self, name: str) -> None:
        """Remove an object; a missing one is success."""

        async def request(client: Any) -> None:
            await client.delete_object(**self.target(name))

        try:
            await self.calls.run("DeleteObject", self.location(name), request)
        except NotFound:
            return

    async def remove_many(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        """Remove many objects, at most 1000 in a request; the errors by name, after all were tried.

        A server that refuses such requests is asked for each object, from then on at once.
        """
        parts = [names[at : at + DELETE_KEYS_MAX] for at in range(0, len(names), DELETE_KEYS_MAX)]
        found = await together(self._remove_part(part) for part in parts)
        return {name: error for kept in found for name, error in kept.items()}

    async def _remove_part(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        if self._deletes_many:
            try:
                return await self._delete_objects(names)
            except Invalid:
                pass  # a refusal of the request; that of an object is in the answer
        kept = await self._remove_each(names)
        if len(kept) < len(names):
            self._deletes_many = False
        return kept

    async def _remove_each(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        async def error_of(name: str) -> RemoteStorageError | None:
            try:
                await self.remove(name)
            except RemoteStorageError as error:
                return error
            return None

        errors = await together(map(error_of, names))
        return {name: error for name, error in zip(names, errors, strict=True) if error is not None}

    async def _delete_objects(self, names: Sequence[str]) -> dict[str, RemoteStorageError]:
        """One DeleteObjects; what passes is tried again for the objects that it concerns."""
        left = tuple(names)
        kept: dict[str, RemoteStorageError] = {}

        async def request(client: Any) -> None:
            nonlocal left
            keys = [{"Key": self.key(name)} for name in left]
            wanted = {"Objects": keys, "Quiet": True}
            answer = await client.delete_objects(Bucket=self._bucket, Delete=wanted)
            failed = self._failed(answer.get("Errors", ()), left)
            passing = {name: one for name, one in failed.items() if verdict_of(one).tries > 1}
            for name, error in failed.items():
                if name not in passing:
                    kept[name] = error_of_s3(error, "DeleteObjects", self.location(name))
            left = tuple(passing)
            for error in passing.values():
                raise error

        try:
            await self.calls.run("DeleteObjects", self.location(names[0]), request)
        except Invalid:
            raise
        except RemoteStorageError as error:
            return kept | dict.fromkeys(left, error)
        return kept

    def _failed(self, items: Iterable[Any], asked: Sequence[str]) -> dict[str, ClientError]:
        """The failures in an answer by name; one that names no object of ours may be of any."""
        failed: dict[str, ClientError] = {}
        for item in items:
            code = str(item.get("Code", "")) or "InternalError"
            answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 200}}
            error = ClientError(answer, "DeleteObjects")
            if verdict_of(error).kind is ErrorKind.NOT_FOUND:
                continue
            name = self.name(str(item.get("Key", "")))
            failed |= {name: error} if name in asked else dict.fromkeys(asked, error)
        return failed

    def _below_prefix(self) -> str:
        return f"{self._prefix}/" if self._prefix else ""

    def _stored(self, item: Any) -> StoredObject:
        modified_ms = round(item["LastModified"].timestamp() * 1000)
        return StoredObject(
            name=self.name(item["Key"]), size_bytes=int(item["Size"]), modified_ms=modified_ms
        )


def broken_off(operation: str, location: str) -> Unavailable:
    """The error of a listing that has more names and does not say where it continues."""
    return Unavailable(
        f"{operation} {location}: the listing breaks off: the server does not say where it goes on"
    )


def encryption_of(settings: S3Settings) -> dict[str, str]:
    """Arguments of a new object that say how the server encrypts it."""
    if settings.sse_type == "none":
        return {}
    options = {"ServerSideEncryption": settings.sse_type}
    if settings.sse_key is not None:
        options["SSEKMSKeyId"] = settings.sse_key
    return options


def _answered_size(answer: Any, start: int, last: int) -> int | None:
    """The expected size of the body by the request and the size of the object; None if another
    range, or none, was answered.
    """
    content_range = str(answer.get("ContentRange", ""))
    _, _, total = content_range.rpartition("/")
    if not content_range.startswith(f"bytes {start}-") or not total.isdecimal():
        return None
    return min(last + 1, int(total)) - start


def _prove(body: bytes, written: str | None) -> None:
    """FlexibleChecksumError unless the body is what was written, where the server reports a
    checksum; botocore itself needs another library for CRC-32C.
    """
    if written is not None and "-" not in written and written != checksum_text(crc32c(body)):
        raise FlexibleChecksumError(error_msg="the body does not have its CRC-32C")


async def _body(answer: Any, size_bytes: int | None, location: str) -> ByteBuffer:
    """The whole body; the connection is closed unless it was read to its end."""
    async with answer["Body"] as stream:
        if size_bytes is None:
            raise Invalid(
                f"GetObject {location}: the server answers another range than it was asked"
            )
        body: ByteBuffer = await stream.read()
    if len(body) != size_bytes:
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=size_bytes)
    return body
