"""What an S3 request asks for, by its method, path and query; and S3's errors as it writes them."""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_BUCKET_SETTINGS = {
    "versioning": "GetBucketVersioning",
    "lifecycle": "GetBucketLifecycleConfiguration",
    "object-lock": "GetObjectLockConfiguration",
    "location": "GetBucketLocation",
    "replication": "GetBucketReplication",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """First line and headers (lower-case names) of a request or answer; `raw` is as received."""

    first: str
    headers: dict[str, str]
    raw: bytes

    @classmethod
    def parse(cls, raw: bytes) -> "Head":
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return cls(
            first=first,
            headers={name.strip().lower(): value.strip() for name, _, value in pairs},
            raw=raw,
        )

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.first.split(" ", 2)[1])

    @property
    def method(self) -> str:
        """Of a request."""
        return self.first.split(" ", 1)[0]

    @property
    def length(self) -> int | None:
        """Content-Length, None where it is not given."""
        value = self.headers.get("content-length")
        return None if value is None else int(value)

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def waits_for_go(self) -> bool:
        """Whether the body is only sent after 100 Continue."""
        return self.headers.get("expect", "").lower() == "100-continue"

    def changed(self, **headers: str | None) -> bytes:
        """Raw bytes with headers set or, where None, left out; `_` in names stands for `-`."""
        wanted = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        first, *lines = self.raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        kept = [line for line in lines if line.partition(":")[0].strip().lower() not in wanted]
        added = [f"{name}: {value}" for name, value in wanted.items() if value is not None]
        return "\r\n".join((first, *kept, *added, "", "")).encode("latin-1")


def operation(head: Head) -> str:
    """Name of the S3 operation a path-style request stands for: `PutObject`, `UploadPart`, ..."""
    target = head.first.split(" ", 2)[1]
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = parts.path.lstrip("/").partition("/")
    if not bucket:
        return "ListBuckets"
    return _of_object(head.method, query) if key else _of_bucket(head.method, query)


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation by its name in S3's reference, and what it is on; `key` is of an object."""

    operation: str
    bucket: str
    key: str
    prefix: str


def asked(head: Head) -> Asked:
    """What a path-style request asks for; of a DeleteObjects only its bucket."""
    parts = urlsplit(head.first.split(" ", 2)[1])
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    name = operation(head)
    if name == "ListObjects" and query.get("list-type") == ["2"]:
        name = "ListObjectsV2"
    return Asked(name, bucket, key, query.get("prefix", [""])[0])


def _of_bucket(method: str, query: dict[str, list[str]]) -> str:
    for name, record in _BUCKET_SETTINGS.items():
        if name in query:
            return record
    if method == "GET":
        return "ListMultipartUploads" if "uploads" in query else "ListObjects"
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    return {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}[method]


def _of_object(method: str, query: dict[str, list[str]]) -> str:
    if "uploadId" in query:
        return {
            "PUT": "UploadPart",
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }[method]
    if "uploads" in query:
        return "CreateMultipartUpload"
    return {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}[
        method
    ]


def error_answer(status: int, code: str, *, with_body: bool) -> bytes:
    """A whole answer with S3's error document; to a HEAD it has no body."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
        f"<Message>scripted by a test</Message><RequestId>1</RequestId></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\n"
        f"Content-Length: {len(body) if with_body else 0}\r\n\r\n"
    ).encode()
    return head + body if with_body else head
