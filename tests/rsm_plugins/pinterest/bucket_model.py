"""A bucket with versions, in memory, and clients of it that fail, die, or are answered late."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

_PAGE = 3
_DATE = {"HTTPHeaders": {"date": "Mon, 01 Jan 2024 00:00:00 GMT"}}


class Killed(BaseException):
    """What a process meets at its next await after SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version, or a delete marker. `number` orders versions by time."""

    number: int
    body: bytes
    metadata: dict[str, str]
    is_marker: bool = False

    @property
    def id(self) -> str:
        return f"v{self.number:06d}"


@dataclass(slots=True)
class _Upload:
    key: str
    metadata: dict[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


def error_of(code: str, operation: str, status: int = 404) -> ClientError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)


class _Stream:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aenter__(self) -> "_Stream":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def read(self) -> bytes:
        return self._body


class Bucket:
    """Every method takes the arguments of botocore's, and is one step of the server."""

    def __init__(self) -> None:
        self.versions: dict[str, list[StoredVersion]] = {}
        self.uploads: dict[str, _Upload] = {}
        self._count = 0

    def _put(self, key: str, body: bytes, metadata: dict[str, str]) -> StoredVersion:
        self._count += 1
        made = StoredVersion(number=self._count, body=body, metadata=metadata)
        self.versions.setdefault(key, []).insert(0, made)
        return made

    def current(self, key: str) -> StoredVersion | None:
        found = self.versions.get(key)
        return None if not found or found[0].is_marker else found[0]

    def _version(self, operation: str, wanted: dict[str, Any]) -> StoredVersion:
        key, version_id = wanted["Key"], wanted.get("VersionId")
        if version_id is None:
            found = self.current(key)
        else:
            several = self.versions.get(key, ())
            found = next((one for one in several if one.id == version_id), None)
        if found is None:
            code = "NoSuchKey" if version_id is None else "NoSuchVersion"
            raise error_of("404" if operation == "HeadObject" else code, operation)
        return found

    def put_object(self, **given: Any) -> dict[str, Any]:
        key, body = given["Key"], given["Body"]
        before = self.current(key)
        is_same = before is not None and _etag(before) == given.get("IfMatch")
        if "IfNoneMatch" in given and before is not None:
            raise error_of("PreconditionFailed", "PutObject", 412)
        if "IfMatch" in given and not is_same:
            code = "NoSuchKey" if before is None else "PreconditionFailed"
            raise error_of(code, "PutObject", 412)
        data = body if isinstance(body, bytes) else body.read()
        return {"VersionId": self._put(key, data, given.get("Metadata", {})).id}

    def get_object(self, **given: Any) -> dict[str, Any]:
        found = self._version("GetObject", given)
        body, wanted = found.body, given.get("Range")
        more = {}
        if wanted is not None:
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            if first >= len(body):
                raise error_of("InvalidRange", "GetObject", 416)
            more = {"ContentRange": f"bytes {first}-{last}/{len(body)}"}
            body = body[first : last + 1]
        return {
            "Body": _Stream(body),
            "ContentLength": len(body),
            "ETag": _etag(found),
            "VersionId": found.id,
            "Metadata": found.metadata,
            **more,
        }

    def head_object(self, **given: Any) -> dict[str, Any]:
        found = self._version("HeadObject", given)
        return {"ContentLength": len(found.body), "Metadata": found.metadata}

    def delete_object(self, **given: Any) -> dict[str, Any]:
        key, version_id = given["Key"], given.get("VersionId")
        several = self.versions.get(key, [])
        if version_id is None:
            self._count += 1
            marker = StoredVersion(number=self._count, body=b"", metadata={}, is_marker=True)
            self.versions.setdefault(key, []).insert(0, marker)
            return {}
        left = [one for one in several if one.id != version_id]
        self.versions[key] = left
        if not left:
            self.versions.pop(key)
        return {}

    def delete_objects(self, **given: Any) -> dict[str, Any]:
        for one in given["Delete"]["Objects"]:
            self.delete_object(Key=one["Key"])
        return {}

    def list_object_versions(self, **given: Any) -> dict[str, Any]:
        rows = [
            (key, one)
            for key, several in sorted(self.versions.items())
            if key.startswith(given["Prefix"])
            for one in several
        ]
        after = given.get("KeyMarker", ""), given.get("VersionIdMarker", "v000000")
        if after[0]:
            at = after[0], -int(after[1][1:])
            rows = [(key, one) for key, one in rows if (key, -one.number) > at]
        page, rest = rows[:_PAGE], rows[_PAGE:]
        found: dict[str, Any] = {"IsTruncated": bool(rest), "Versions": [], "DeleteMarkers": []}
        for key, one in page:
            name = "DeleteMarkers" if one.is_marker else "Versions"
            found[name].append({"Key": key, "VersionId": one.id})
        if rest:
            found |= {"NextKeyMarker": page[-1][0], "NextVersionIdMarker": page[-1][1].id}
        return found

    def list_objects_v2(self, **given: Any) -> dict[str, Any]:
        names = [one for one in sorted(self.versions) if self.current(one) is not None]
        names = [one for one in names if one.startswith(given["Prefix"])]
        after = given.get("ContinuationToken") or given.get("StartAfter", "")
        names = [one for one in names if one > after]
        if "Delimiter" in given:
            folders = {one.removeprefix(given["Prefix"]).partition("/")[0] for one in names}
            return {"CommonPrefixes": [{"Prefix": f"{given['Prefix']}{one}/"} for one in folders]}
        page, rest = names[: given["MaxKeys"]], names[given["MaxKeys"] :]
        made = datetime(2024, 1, 1, tzinfo=UTC)
        contents = [
            {"Key": one, "Size": len(self.versions[one][0].body), "LastModified": made}
            for one in page
        ]
        more = {"NextContinuationToken": page[-1]} if rest else {}
        return {"Contents": contents, "IsTruncated": bool(rest), **more}

    def create_multipart_upload(self, **given: Any) -> dict[str, Any]:
        self._count += 1
        name = f"u{self._count}"
        self.uploads[name] = _Upload(given["Key"], given.get("Metadata", {}))
        return {"UploadId": name}

    def _upload(self, operation: str, given: dict[str, Any]) -> _Upload:
        if given["UploadId"] not in self.uploads:
            raise error_of("NoSuchUpload", operation)
        return self.uploads[given["UploadId"]]

    def upload_part(self, **given: Any) -> dict[str, Any]:
        upload = self._upload("UploadPart", given)
        upload.parts[given["PartNumber"]] = given["Body"].read()
        return {"ETag": "e"}

    def complete_multipart_upload(self, **given: Any) -> dict[str, Any]:
        upload = self._upload("CompleteMultipartUpload", given)
        del self.uploads[given["UploadId"]]
        body = b"".join(data for _, data in sorted(upload.parts.items()))
        return {"VersionId": self._put(upload.key, body, upload.metadata).id}

    def abort_multipart_upload(self, **given: Any) -> dict[str, Any]:
        self._upload("AbortMultipartUpload", given)
        del self.uploads[given["UploadId"]]
        return {}

    def list_parts(self, **given: Any) -> dict[str, Any]:
        self._upload("ListParts", given)
        return {}

    def list_multipart_uploads(self, **given: Any) -> dict[str, Any]:
        found = [
            {"Key": one.key, "UploadId": name, "Initiated": datetime(2024, 1, 1, tzinfo=UTC)}
            for name, one in self.uploads.items()
            if one.key.startswith(given["Prefix"])
        ]
        return {"Uploads": found, "ResponseMetadata": _DATE}

    def get_bucket_versioning(self, **_: Any) -> dict[str, Any]:
        return {"Status": "Enabled"}

    def get_bucket_lifecycle_configuration(self, **_: Any) -> dict[str, Any]:
        return {}


def _etag(version: StoredVersion) -> str:
    return f'"{hash(version.body)}"'


class Network:
    """All requests that the server has not worked off yet."""

    def __init__(self, bucket: Bucket, chance: random.Random) -> None:
        self.bucket = bucket
        self.chance = chance
        self.on_the_way: set[asyncio.Task[Any]] = set()

    def answered(self, request: asyncio.Task[Any]) -> None:
        self.on_the_way.discard(request)
        if not request.cancelled():
            request.exception()  # its client may have gone

    async def settled(self) -> None:
        while self.on_the_way:
            await asyncio.wait(self.on_the_way)


class Client:
    """botocore's client of one process; `odds` of a failure before or after each request."""

    def __init__(self, network: Network, odds: float) -> None:
        self._network = network
        self._odds = odds
        self.is_dead = False

    async def client(self) -> "Client":
        return self

    async def pause(self, _seconds: float) -> None:
        await self._awaits()

    async def _awaits(self) -> None:
        for _ in range(self._network.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.is_dead:
            raise Killed

    async def _asked(self, operation: str, step: Callable[[], Any]) -> Any:
        chance = self._network.chance
        await self._awaits()
        if chance.random() < self._odds:
            raise error_of("SlowDown", operation, 503)
        request = asyncio.ensure_future(self._served(step))
        self._network.on_the_way.add(request)
        request.add_done_callback(self._network.answered)
        try:
            answer = await asyncio.shield(request)
        except asyncio.CancelledError:
            if chance.random() < 0.5:
                request.cancel()
            raise
        await self._awaits()
        if chance.random() < self._odds:
            raise ConnectionClosedError(endpoint_url="s3")
        return answer

    async def _served(self, step: Callable[[], Any]) -> Any:
        chance = self._network.chance
        for _ in range(chance.choice((0, 1, 3, 40) if self._odds else (0,))):
            await asyncio.sleep(0)
        return step()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._network.bucket, name)

        async def call(**given: Any) -> Any:
            return await self._asked(name, lambda: method(**given))

        return call
