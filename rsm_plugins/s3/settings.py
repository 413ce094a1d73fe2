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
from rsm_plugins.settings.table import PREFIX_SETTING, Setting, flag, folder, number, one_of, text

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
    if not text(value):
        raise ValueError
    return text(value)


def _bucket(value: object) -> str:
    if not _BUCKET.fullmatch(text(value)):
        raise ValueError
    return text(value)


def _url(value: object) -> str:
    parts = urlsplit(text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError
    if parts.query or parts.fragment:
        raise ValueError
    return text(value).rstrip("/")


BUCKET = Setting(
    key=f"{_S3}bucket.name",
    check=_bucket,
    allowed="the name of a bucket",
    doc="Bucket of the store. It must exist; the plugin never creates it.",
    required=True,
)
REGION = Setting(
    key=f"{_S3}region",
    check=_filled,
    allowed="a region's name, such as eu-central-1",
    doc="Region of the bucket. Without it, that of the environment (AWS_REGION), else us-east-1.",
)
ENDPOINT = Setting(
    key=f"{_S3}endpoint.url",
    check=_url,
    allowed="http://HOST[:PORT] or https://HOST[:PORT]",
    doc="Address of a server other than Amazon's.",
)
PATH_STYLE = Setting(
    key=f"{_S3}path.style.access.enabled",
    check=flag,
    allowed="true | false",
    doc="Whether the bucket is in the path instead of in the host name. Most servers other than "
    "Amazon's need it.",
    default=False,
)
PART_SIZE = Setting(
    key=f"{_S3}multipart.upload.part.size",
    check=number(PART_MIN_BYTES, PART_MAX_BYTES),
    allowed=f"{PART_MIN_BYTES} to {PART_MAX_BYTES} bytes",
    doc="Size of the parts of a log in bytes; a log that is not larger is uploaded in one request.",
    default=16 * MIB,
)
UPLOADS = Setting(
    key=f"{_S3}upload.concurrency",
    check=number(1, 256),
    allowed="1 to 256",
    doc="Parts that are uploaded at once, of all copies together. Multiplied by the part size, it "
    "limits the memory of copies.",
    default=8,
)
CONNECTIONS = Setting(
    key=f"{_S3}max.connections",
    check=number(2, 1024),
    allowed="2 to 1024, more than rsm.config.s3.upload.concurrency",
    doc="Connections open at once, of all calls together.",
    default=64,
)
STORAGE_CLASS = Setting(
    key=f"{_S3}storage.class",
    check=one_of(STORAGE_CLASSES),
    allowed=" | ".join(STORAGE_CLASSES),
    doc="Storage class of logs and indexes. Manifests and the identity stay in the bucket's "
    "default class. Archives are not offered: their objects cannot be read at once.",
)
SSE_TYPE = Setting(
    key=f"{_S3}sse.type",
    check=one_of(SSE_TYPES),
    allowed=" | ".join(SSE_TYPES),
    doc="Encryption by the server; none uses the bucket's default.",
    default="none",
)
SSE_KEY = Setting(
    key=f"{_S3}sse.kms.key.id",
    check=_filled,
    allowed="id or ARN of a KMS key",
    doc="Key for rsm.config.s3.sse.type aws:kms; without it the account's own key for S3.",
)
ACCESS_KEY = Setting(
    key=f"{_AWS}access.key.id",
    check=_filled,
    allowed="an access key id, together with rsm.config.aws.secret.access.key",
    doc="Static credentials.",
)
SECRET_KEY = Setting(
    key=f"{_AWS}secret.access.key",
    check=_filled,
    allowed="the secret of the access key",
    doc="Static credentials.",
    secret=True,
)
SESSION_TOKEN = Setting(
    key=f"{_AWS}session.token",
    check=_filled,
    allowed="the token of temporary credentials",
    doc="Static credentials.",
    secret=True,
)
CREDENTIALS_FILE = Setting(
    key=f"{_AWS}credentials.file",
    check=folder,
    allowed="an absolute path",
    doc="Shared credentials file (INI); read again when it changes.",
)
PROFILE = Setting(
    key=f"{_AWS}profile",
    check=_filled,
    allowed="the name of a profile",
    doc="Profile in rsm.config.aws.credentials.file, or in the user's own files without it.",
)
ROLE = Setting(
    key=f"{_AWS}role.arn",
    check=_filled,
    allowed="ARN of a role",
    doc="Role to assume: with the web identity token where one is given, else with the other "
    "credentials.",
)
ROLE_SESSION = Setting(
    key=f"{_AWS}role.session.name",
    check=_filled,
    allowed="a name",
    doc="Name of the session of the role, as audit logs show it.",
    default="kafka-rlm",
)
EXTERNAL_ID = Setting(
    key=f"{_AWS}role.external.id",
    check=_filled,
    allowed="the external id that the role's trust policy asks for",
    doc="External id of the role.",
    secret=True,
)
TOKEN_FILE = Setting(
    key=f"{_AWS}web.identity.token.file",
    check=folder,
    allowed="an absolute path",
    doc="Token of a web identity (Kubernetes service account); needs rsm.config.aws.role.arn.",
)
STS_ENDPOINT = Setting(
    key=f"{_AWS}sts.endpoint.url",
    check=_url,
    allowed="http://HOST[:PORT] or https://HOST[:PORT]",
    doc="Address of the security token service; without it, Amazon's in the region.",
)
CALL_TIMEOUT = Setting(
    key=f"{_S3}api.call.timeout",
    check=number(100, 3_600_000),
    allowed="100 to 3600000 milliseconds",
    doc="Longest time for one request with all its retries.",
    default=240_000,
)
ATTEMPT_TIMEOUT = Setting(
    key=f"{_S3}api.call.attempt.timeout",
    check=number(100, 3_600_000),
    allowed="100 to 3600000 milliseconds",
    doc="Longest time for one attempt of a request with its body; four times that for an upload.",
    default=30_000,
)
STALE_UPLOAD_AGE = Setting(
    key=f"{_S3}stale.upload.age.ms",
    check=number(60_000, 2**53),
    allowed="60000 or more milliseconds",
    doc="Age from which unfinished uploads of segments below the prefix are aborted at start.",
    default=86_400_000,
)

SETTINGS: tuple[Setting, ...] = (
    BUCKET,
    PREFIX_SETTING,
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSettings:
    """Where the credentials come from; without any setting, botocore's own chain."""

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
    upload_concurrency: int = 8
    max_connections: int = 64
    storage_class: str | None = None
    sse_type: str = "none"
    sse_key: str | None = None
    call_timeout_ms: int = 240_000
    attempt_timeout_ms: int = 30_000
    stale_upload_age_ms: int = 86_400_000
    credentials: CredentialSettings = CredentialSettings()

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
        """Where the store is, for people; the endpoint is part of what it is."""
        place = f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return f"{place}?endpoint={self.endpoint}" if self.endpoint else place


def s3_settings(values: Mapping[str, Any]) -> S3Settings:
    """Of checked values by full key; Invalid where they do not go together."""
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
        upload_concurrency=values[UPLOADS.key],
        max_connections=values[CONNECTIONS.key],
        storage_class=values[STORAGE_CLASS.key],
        sse_type=values[SSE_TYPE.key],
        sse_key=values[SSE_KEY.key],
        call_timeout_ms=values[CALL_TIMEOUT.key],
        attempt_timeout_ms=values[ATTEMPT_TIMEOUT.key],
        stale_upload_age_ms=values[STALE_UPLOAD_AGE.key],
        credentials=credentials,
    )
