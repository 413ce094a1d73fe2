"""Settings of the S3 store: the rows of `rsm.config.*`, and their checked values as one value.

Names follow Aiven's plugin where it has the setting. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kip405.errors import Invalid
from kip405.settings import FLAG, PATH, REQUIRED, Kind, Setting, Table, as_text, choice, integer
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.pinterest.settings import COMMON as PINTEREST_ROWS
from rsm_plugins.pinterest.settings import PREFIX as PINTEREST_PREFIX
from rsm_plugins.pinterest.settings import written_layout
from rsm_plugins.store_kinds import BLOCK_SIZE_BYTES, BLOCK_SIZE_SETTING, PREFIX_SETTING

MIB = 1024 * 1024
PART_MIN_BYTES = 5 * MIB
PART_MAX_BYTES = 1024 * MIB
SSE_TYPES = ("none", "AES256", "aws:kms")
STORAGE_CLASSES = (
    "STANDARD",
    "STANDARD_IA",
    "INTELLIGENT_TIERING",
    "ONEZONE_IA",
    "GLACIER_IR",
    "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
)
"""Classes whose objects can be read at once; the archives cannot."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_S3 = "rsm.config.s3."
_AWS = "rsm.config.aws."


def _filled(value: object) -> str:
    if not as_text(value):
        raise ValueError
    return as_text(value)


def _bucket(value: object) -> str:
    if not _BUCKET.fullmatch(as_text(value)):
        raise ValueError
    return as_text(value)


def _url(value: object) -> str:
    parts = urlsplit(as_text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError
    if parts.query or parts.fragment:
        raise ValueError
    return as_text(value).rstrip("/")


BUCKET = Setting(
    key=f"{_S3}bucket.name",
    kind=Kind(allowed="the name of a bucket", read=_bucket),
    doc="Bucket of the store. It must exist; the plugin never creates it.",
    default=REQUIRED,
)
REGION = Setting(
    key=f"{_S3}region",
    kind=Kind(allowed="a region's name, such as eu-central-1", read=_filled),
    doc="Region of the bucket. Without it, that of the environment (AWS_REGION), else us-east-1.",
)
ENDPOINT = Setting(
    key=f"{_S3}endpoint.url",
    kind=Kind(allowed="http://HOST[:PORT] or https://HOST[:PORT]", read=_url),
    doc="Address of a server other than Amazon's.",
)
PATH_STYLE = Setting(
    key=f"{_S3}path.style.access.enabled",
    kind=FLAG,
    doc="Whether the bucket is in the path instead of in the host name. Most servers other than "
    "Amazon's need it.",
    default=False,
)
PART_SIZE = Setting(
    key=f"{_S3}multipart.upload.part.size",
    kind=integer(PART_MIN_BYTES, PART_MAX_BYTES),
    doc="Size of the parts of a log in bytes; a log that is not larger is uploaded in one request.",
    default=16 * MIB,
    unit="bytes",
)
UPLOADS = Setting(
    key=f"{_S3}upload.concurrency",
    kind=integer(1, 256),
    doc="Parts that are uploaded at once, of all copies together. Multiplied by the part size, it "
    "limits the memory of copies.",
    default=8,
)
CONNECTIONS = Setting(
    key=f"{_S3}max.connections",
    kind=integer(2, 1024),
    doc="Connections open at once, of all calls together; more than "
    "rsm.config.s3.upload.concurrency.",
    default=64,
)
STORAGE_CLASS = Setting(
    key=f"{_S3}storage.class",
    kind=choice(*STORAGE_CLASSES),
    doc="Storage class of logs and indexes. Manifests and the identity stay in the bucket's "
    "default class. Archives are not offered: their objects cannot be read at once.",
)
SSE_TYPE = Setting(
    key=f"{_S3}sse.type",
    kind=choice(*SSE_TYPES),
    doc="Encryption by the server; none uses the bucket's default.",
    default="none",
)
SSE_KEY = Setting(
    key=f"{_S3}sse.kms.key.id",
    kind=Kind(allowed="id or ARN of a KMS key", read=_filled),
    doc="Key for rsm.config.s3.sse.type aws:kms; without it the account's own key for S3.",
)
ACCESS_KEY = Setting(
    key=f"{_AWS}access.key.id",
    kind=Kind(
        allowed="an access key id, together with rsm.config.aws.secret.access.key", read=_filled
    ),
    doc="Static credentials.",
)
SECRET_KEY = Setting(
    key=f"{_AWS}secret.access.key",
    kind=Kind(allowed="the secret of the access key", read=_filled),
    doc="Static credentials.",
    secret=True,
)
SESSION_TOKEN = Setting(
    key=f"{_AWS}session.token",
    kind=Kind(allowed="the token of temporary credentials", read=_filled),
    doc="Static credentials.",
    secret=True,
)
CREDENTIALS_FILE = Setting(
    key=f"{_AWS}credentials.file",
    kind=PATH,
    doc="Shared credentials file (INI); read again when it changes.",
)
PROFILE = Setting(
    key=f"{_AWS}profile",
    kind=Kind(allowed="the name of a profile", read=_filled),
    doc="Profile in rsm.config.aws.credentials.file, or in the user's own files without it.",
)
ROLE = Setting(
    key=f"{_AWS}role.arn",
    kind=Kind(allowed="ARN of a role", read=_filled),
    doc="Role to assume: with the web identity token where one is given, else with the other "
    "credentials.",
)
ROLE_SESSION = Setting(
    key=f"{_AWS}role.session.name",
    kind=Kind(allowed="a name", read=_filled),
    doc="Name of the session of the role, as audit logs show it.",
    default="kafka-rlm",
)
EXTERNAL_ID = Setting(
    key=f"{_AWS}role.external.id",
    kind=Kind(allowed="the external id that the role's trust policy asks for", read=_filled),
    doc="External id of the role.",
    secret=True,
)
TOKEN_FILE = Setting(
    key=f"{_AWS}web.identity.token.file",
    kind=PATH,
    doc="Token of a web identity (Kubernetes service account); needs rsm.config.aws.role.arn.",
)
STS_ENDPOINT = Setting(
    key=f"{_AWS}sts.endpoint.url",
    kind=Kind(allowed="http://HOST[:PORT] or https://HOST[:PORT]", read=_url),
    doc="Address of the security token service; without it, Amazon's in the region.",
)
CALL_TIMEOUT = Setting(
    key=f"{_S3}api.call.timeout",
    kind=integer(100, 3_600_000),
    doc="Longest time for one request with all its retries.",
    default=240_000,
    unit="ms",
)
ATTEMPT_TIMEOUT = Setting(
    key=f"{_S3}api.call.attempt.timeout",
    kind=integer(100, 3_600_000),
    doc="Longest time for one attempt of a request with its body; four times that for an upload.",
    default=30_000,
    unit="ms",
)
STALE_UPLOAD_AGE = Setting(
    key=f"{_S3}stale.upload.age.ms",
    kind=integer(60_000),
    doc="Age from which unfinished uploads of segments below the prefix are aborted at start.",
    default=86_400_000,
    unit="ms",
)

PINTEREST_BUCKET = Setting(
    key="rsm.config.pinterest.bucket",
    kind=Kind(allowed="the name of a bucket", read=_bucket),
    doc="Bucket that Pinterest's uploader fills, with the endpoint and the credentials of the "
    "store. It is only read: rights to list it and to get its objects are enough.",
)

SETTINGS = Table(
    BUCKET,
    PREFIX_SETTING,
    BLOCK_SIZE_SETTING,
    REGION,
    ENDPOINT,
    PATH_STYLE,
    PART_SIZE,
    UPLOADS,
    CONNECTIONS,
    STORAGE_CLASS,
    SSE_TYPE,
    SSE_KEY,
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    CREDENTIALS_FILE,
    PROFILE,
    ROLE,
    ROLE_SESSION,
    EXTERNAL_ID,
    TOKEN_FILE,
    STS_ENDPOINT,
    CALL_TIMEOUT,
    ATTEMPT_TIMEOUT,
    STALE_UPLOAD_AGE,
    PINTEREST_BUCKET,
    *PINTEREST_ROWS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSettings:
    """The source of the credentials; without any setting, botocore's own chain."""

    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    file: Path | None = None
    profile: str | None = None
    role: str | None = None
    role_session: str = "kafka-rlm"
    external_id: str | None = None
    token_file: Path | None = None
    sts_endpoint: str | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise Invalid(f"{ACCESS_KEY.key} and {SECRET_KEY.key} belong together")
        if self.session_token is not None and self.access_key is None:
            raise Invalid(f"{SESSION_TOKEN.key} needs {ACCESS_KEY.key}")
        if self.access_key is not None and (self.file or self.profile):
            raise Invalid(f"give either {ACCESS_KEY.key} or {CREDENTIALS_FILE.key}, not both")
        if self.token_file is not None and self.role is None:
            raise Invalid(f"{TOKEN_FILE.key} needs {ROLE.key}")
        if self.external_id is not None and self.role is None:
            raise Invalid(f"{EXTERNAL_ID.key} needs {ROLE.key}")

    def __repr__(self) -> str:
        return f"CredentialSettings(role={self.role!r}, file={self.file!r}, ...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """The settings of the store; sizes in bytes, times in ms."""

    bucket: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    path_style: bool = False
    part_size_bytes: int = 16 * MIB
    block_size_bytes: int = BLOCK_SIZE_BYTES
    upload_concurrency: int = 8
    max_connections: int = 64
    storage_class: str | None = None
    sse_type: str = "none"
    sse_key: str | None = None
    call_timeout_ms: int = 240_000
    attempt_timeout_ms: int = 30_000
    stale_upload_age_ms: int = 86_400_000
    credentials: CredentialSettings = CredentialSettings()
    pinterest: PinterestLayout | None = None
    pinterest_prefix: str = ""

    def __post_init__(self) -> None:
        if self.sse_key is not None and self.sse_type != "aws:kms":
            raise Invalid(f"{SSE_KEY.key} needs {SSE_TYPE.key}: aws:kms")
        if self.upload_concurrency >= self.max_connections:
            raise Invalid(
                f"{CONNECTIONS.key} must be more than {UPLOADS.key}: reads need connections too"
            )
        if self.attempt_timeout_ms > self.call_timeout_ms:
            raise Invalid(f"{ATTEMPT_TIMEOUT.key} must not be more than {CALL_TIMEOUT.key}")

    @property
    def uri(self) -> str:
        """The store's location, for people; the endpoint belongs to it."""
        uri = f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return f"{uri}?endpoint={self.endpoint}" if self.endpoint else uri


def s3_settings(values: Mapping[str, Any]) -> S3Settings:
    """From checked values by key; Invalid where they contradict each other."""
    credentials = CredentialSettings(
        access_key=values[ACCESS_KEY.key],
        secret_key=values[SECRET_KEY.key],
        session_token=values[SESSION_TOKEN.key],
        file=values[CREDENTIALS_FILE.key],
        profile=values[PROFILE.key],
        role=values[ROLE.key],
        role_session=values[ROLE_SESSION.key],
        external_id=values[EXTERNAL_ID.key],
        token_file=values[TOKEN_FILE.key],
        sts_endpoint=values[STS_ENDPOINT.key],
    )
    return S3Settings(
        bucket=values[BUCKET.key],
        prefix=values[PREFIX_SETTING.key],
        region=values[REGION.key],
        endpoint=values[ENDPOINT.key],
        path_style=values[PATH_STYLE.key],
        part_size_bytes=values[PART_SIZE.key],
        block_size_bytes=values[BLOCK_SIZE_SETTING.key],
        upload_concurrency=values[UPLOADS.key],
        max_connections=values[CONNECTIONS.key],
        storage_class=values[STORAGE_CLASS.key],
        sse_type=values[SSE_TYPE.key],
        sse_key=values[SSE_KEY.key],
        call_timeout_ms=values[CALL_TIMEOUT.key],
        attempt_timeout_ms=values[ATTEMPT_TIMEOUT.key],
        stale_upload_age_ms=values[STALE_UPLOAD_AGE.key],
        credentials=credentials,
        pinterest=written_layout(values, PINTEREST_BUCKET.key),
        pinterest_prefix=values[PINTEREST_PREFIX.key],
    )
