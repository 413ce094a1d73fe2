"""Single versions of objects in a bucket whose versioning is enabled.

Several writers may put objects under one key: each put makes a version of its own, which stays
until that very version is deleted. Nothing here deletes "the object", whose current version may be
anybody's. This module must not know what a segment is.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from kip405.crc import crc32c
from kip405.errors import Invalid, NotFound, RemoteStorageError
from rsm_plugins.s3.bodies import Body
from rsm_plugins.s3.calls import together
from rsm_plugins.s3.errors import code_of
from rsm_plugins.s3.findings import problem_of_versions
from rsm_plugins.s3.objects import (
    Objects,
    UserMetadata,
    broken_off,
    checksum_text,
)

CHECKED_SECONDS = 60.0
NAMES_AT_ONCE = 16
CONDITION_NAME = "rlm-if-match"
"""Of an object that no server makes which knows conditions."""
_NO_ETAG = f'"{"0" * 32}"'
_NO_CONDITIONS = (
    "the server does not put objects on condition of an ETag (If-Match), by which offset.wm of the "
    "layout pinterest only rises: take a server that does, or another storage.layout"
)
_DENIED = ("AccessDenied", "AllAccessDisabled", "403")
_CHANGED = ("PreconditionFailed", "412", "NoSuchKey", "ConditionalRequestConflict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of an object, or a delete marker; `name` as in Objects."""

    name: str
    version_id: str
    is_marker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a HEAD of one version answers."""

    size_bytes: int
    metadata: UserMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The current version of a small object."""

    body: bytes
    etag: str
    version_id: str
    metadata: UserMetadata


class Versions:
    """The versions of the objects of a bucket below a prefix."""

    def __init__(self, objects: Objects, prefix: str) -> None:
        self.objects = objects
        self._prefix = prefix
        self._checked_at: float | None = None
        self._has_conditions = False

    async def check_bucket(self) -> None:
        """Invalid unless each put makes a version that only a deletion of it removes, and puts on
        condition are known. Asked again after a minute.
        """
        now = asyncio.get_running_loop().time()
        if self._checked_at is not None and now - self._checked_at < CHECKED_SECONDS:
            return
        problem = await problem_of_versions(self.objects, self._prefix)
        problem = problem or await self.problem_of_conditions()
        if problem is not None:
            raise Invalid(f"bucket {self.objects.bucket}: {problem}")
        self._checked_at = now

    async def problem_of_conditions(self) -> str | None:
        """Why `replace` cannot be relied on here, and what to do; None: it can, or the credentials
        may not write. A server that knows conditions writes nothing for it, and is asked once.
        """
        if self._has_conditions:
            return None
        body, nobody = b"", Current(body=b"", etag=_NO_ETAG, version_id="", metadata={})
        try:
            is_written = await self.replace(
                CONDITION_NAME, body, metadata={}, checksum=crc32c(body), before=nobody
            )
        except Invalid as error:
            return f"{_NO_CONDITIONS}: {error}"
        except RemoteStorageError as error:
            cause = error.__cause__
            if not isinstance(cause, ClientError) or code_of(cause) not in _DENIED:
                raise
            is_written = False  # as of a reader, which does not ask again
        if is_written:
            there = [one async for one in self.listed(CONDITION_NAME) if one.version_id]
            await self.remove([one for one in there if one.name == CONDITION_NAME])
            return _NO_CONDITIONS
        self._has_conditions = True
        return None

    async def listed(self, beginning: str) -> AsyncIterator[Version]:
        """All versions of the names that begin so, of one name the newest first."""
        options: dict[str, Any] = {}
        location = self.objects.location(beginning)
        while True:
            answer = await self._page(beginning, options)
            for is_marker, items in (
                (False, answer.get("Versions", ())),
                (True, answer.get("DeleteMarkers", ())),
            ):
                for item in items:
                    yield Version(
                        name=self.objects.name(item["Key"]),
                        version_id=str(item["VersionId"]),
                        is_marker=is_marker,
                    )
            if not answer.get("IsTruncated"):
                return
            following = {
                "KeyMarker": answer.get("NextKeyMarker", ""),
                "VersionIdMarker": answer.get("NextVersionIdMarker", ""),
            }
            if not following["KeyMarker"] or following == options:
                raise broken_off("ListObjectVersions", location)
            options = following

    async def _page(self, beginning: str, options: dict[str, Any]) -> Any:
        async def request(client: Any) -> Any:
            return await client.list_object_versions(
                Bucket=self.objects.bucket, Prefix=self.objects.key(beginning), **options
            )

        location = self.objects.location(beginning)
        return await self.objects.calls.run("ListObjectVersions", location, request)

    async def head(self, version: Version) -> Head | None:
        """Size and user metadata of a version; None: a HEAD is answered 404, as `size_of`."""

        async def request(client: Any) -> Head:
            answer = await client.head_object(
                **self.objects.target(version.name, version.version_id)
            )
            return Head(
                size_bytes=int(answer["ContentLength"]),
                metadata={str(key).lower(): text for key, text in answer["Metadata"].items()},
            )

        location = self.objects.location(version.name)
        try:
            return await self.objects.calls.run("HeadObject", location, request)
        except NotFound:
            return None

    async def remove(self, versions: Sequence[Version]) -> None:
        """Delete these versions and nothing else, as `listed` answered them; one that is gone is
        success. The first error is raised after all were tried.

        Those of one name go one after the other, the oldest first: the current one last, or some
        servers would move what is being deleted.
        """
        by_name: defaultdict[str, list[Version]] = defaultdict(list)
        for version in reversed(versions):
            by_name[version.name].append(version)
        slots = asyncio.Semaphore(NAMES_AT_ONCE)
        errors = await together(self._remove_in_turn(some, slots) for some in by_name.values())
        for error in errors:
            if error is not None:
                raise error

    async def _remove_in_turn(
        self, versions: Sequence[Version], slots: asyncio.Semaphore
    ) -> RemoteStorageError | None:
        async with slots:
            errors = [await self._error_of(version) for version in versions]
        return next((error for error in errors if error is not None), None)

    async def _error_of(self, version: Version) -> RemoteStorageError | None:
        if not version.version_id:
            name = self.objects.location(version.name)
            return Invalid(f"{name} has no version of its own that could be removed")

        async def request(client: Any) -> None:
            await client.delete_object(**self.objects.target(version.name, version.version_id))

        location = self.objects.location(version.name)
        try:
            await self.objects.calls.run("DeleteObject", location, request)
        except NotFound:
            return None
        except RemoteStorageError as error:
            if version in [one async for one in self.listed(version.name)]:
                return error
        return None  # it is gone, which some servers call an error

    async def put(
        self, name: str, body: bytes | Body, *, metadata: UserMetadata, checksum: int
    ) -> None:
        """Put a further version."""
        await self.objects.write(name, body, metadata=metadata, checksum=checksum)

    async def current(self, name: str) -> Current | None:
        """The current version of a small object, None if there is none."""

        async def request(client: Any) -> Current:
            answer = await client.get_object(**self.objects.target(name))
            async with answer["Body"] as stream:
                body = bytes(await stream.read())
            return Current(
                body=body,
                etag=str(answer["ETag"]),
                version_id=str(answer.get("VersionId", "")),
                metadata={str(key).lower(): text for key, text in answer["Metadata"].items()},
            )

        try:
            return await self.objects.calls.run("GetObject", self.objects.location(name), request)
        except NotFound:
            return None

    async def replace(
        self,
        name: str,
        body: bytes,
        *,
        metadata: UserMetadata,
        checksum: int,
        before: Current | None,
    ) -> bool:
        """Put a version if the current one is still that of before; whether it was."""
        options = self.objects.creation(metadata, data=False)
        options["ChecksumCRC32C"] = checksum_text(checksum)
        options |= {"IfNoneMatch": "*"} if before is None else {"IfMatch": before.etag}

        async def request(client: Any) -> bool:
            try:
                await client.put_object(**self.objects.target(name), Body=body, **options)
            except ClientError as error:
                if code_of(error) in _CHANGED:
                    return False
                raise
            return True

        return await self.objects.calls.run("PutObject", self.objects.location(name), request)
