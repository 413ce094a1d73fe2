"""Translates errors of S3 and of the network, and decides whether the plugin retries by itself.

There is one table: by the server's code, then by status, then by the exception's class. A message
names the operation, the bucket, the key and what to do. It never repeats the server's text, because
some servers send back parts of the request.

A refusal (403) is Unavailable, not Invalid: once the policy or the credentials are corrected, the
same call succeeds, and until then nothing is known about the object. A 404 without a code of S3 is
the page of a proxy or of another server, and proves nothing about the object either (H11); only the
answer to a HEAD cannot carry a code.
"""

import asyncio
from dataclasses import dataclass

import aiohttp
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from kip405.errors import ErrorKind, RemoteStorageError, error_of_kind
from rsm_plugins.s3.rights import permission_of

_NOT_FOUND = ErrorKind.NOT_FOUND
_UNAVAILABLE = ErrorKind.UNAVAILABLE
_INVALID = ErrorKind.INVALID
_INTERNAL = ErrorKind.INTERNAL
_CORRUPT = ErrorKind.CORRUPT
_MANY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The meaning of an error; `tries`: how often the same request is tried in all."""

    kind: ErrorKind
    tries: int = 1
    hint: str = ""


_PASSING = Verdict(kind=_UNAVAILABLE, tries=_MANY)
_KEYS = Verdict(kind=_UNAVAILABLE, hint="mend the credentials (rsm.config.aws.*)")
_EXPIRED = Verdict(kind=_UNAVAILABLE, tries=2, hint="the credentials must be renewed")
_REGION = Verdict(
    kind=_INVALID, hint="rsm.config.s3.region or rsm.config.s3.endpoint.url is not the bucket's"
)
_DENIED = Verdict(kind=_UNAVAILABLE)
_AWAY = Verdict(kind=_UNAVAILABLE, hint="the bucket is away; it is never created by us")
_FULL = Verdict(kind=_UNAVAILABLE, hint="free space in the store or raise its quota")
_KMS = Verdict(kind=_UNAVAILABLE, hint="mend the key (rsm.config.s3.sse.kms.key.id) or its policy")
_STRANGER = Verdict(
    kind=_UNAVAILABLE,
    hint="no S3 answers so: look at rsm.config.s3.endpoint.url and at what lies in between",
)
_LACKS = Verdict(kind=_INVALID, hint="the server does not know this request")

BY_CODE: dict[str, Verdict] = {
    "NoSuchKey": Verdict(kind=_NOT_FOUND),
    "NoSuchVersion": Verdict(kind=_NOT_FOUND),
    "NoSuchBucket": _AWAY,
    "NoSuchUpload": Verdict(kind=_UNAVAILABLE, hint="the upload was aborted by somebody else"),
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountProblem": _DENIED,
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "InvalidToken": _KEYS,
    "InvalidClientTokenId": _KEYS,
    "InvalidIdentityToken": _KEYS,
    "UnrecognizedClientException": _KEYS,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestExpired": _EXPIRED,
    "RequestTimeTooSkewed": Verdict(kind=_UNAVAILABLE, hint="set this machine's clock"),
    "SlowDown": _PASSING,
    "Throttling": _PASSING,
    "ThrottlingException": _PASSING,
    "RequestLimitExceeded": _PASSING,
    "TooManyRequests": _PASSING,
    "BandwidthLimitExceeded": _PASSING,
    "ServiceUnavailable": _PASSING,
    "InternalError": _PASSING,
    "RequestTimeout": _PASSING,
    "OperationAborted": _PASSING,
    "ConditionalRequestConflict": _PASSING,
    "IncompleteBody": _PASSING,
    "BadDigest": _PASSING,
    "InvalidDigest": _PASSING,
    "XAmzContentChecksumMismatch": _PASSING,
    "XAmzContentSHA256Mismatch": _PASSING,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
    "InsufficientStorage": _FULL,
    "InvalidObjectState": Verdict(
        kind=_UNAVAILABLE, hint="the object is archived: restore it, and end the lifecycle rule"
    ),
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NotImplemented": _LACKS,
    "MethodNotAllowed": _LACKS,
}

_BY_STATUS: dict[int, Verdict] = {
    301: _REGION,
    307: _REGION,
    401: _KEYS,
    403: _DENIED,
    404: _STRANGER,
    408: _PASSING,
    409: _PASSING,
    429: _PASSING,
    501: _LACKS,
    507: _FULL,
}

_BARE_404 = {"HeadObject": Verdict(kind=_NOT_FOUND)}
"""By operation, where a 404 cannot have a code."""

_BY_CLASS: tuple[tuple[type[BaseException], Verdict], ...] = (
    (boto.SSLError, Verdict(kind=_UNAVAILABLE, hint="mend the certificate or what we trust")),
    (boto.NoCredentialsError, _KEYS),
    (boto.PartialCredentialsError, _KEYS),
    (boto.CredentialRetrievalError, _KEYS),
    (boto.ProfileNotFound, _KEYS),
    (boto.ConfigParseError, _KEYS),
    (boto.MetadataRetrievalError, Verdict(kind=_UNAVAILABLE, tries=_MANY, hint=_KEYS.hint)),
    (boto.NoRegionError, _REGION),
    (boto.HTTPClientError, _PASSING),
    (boto.ConnectionError, _PASSING),
    (boto.ResponseStreamingError, _PASSING),
    (boto.IncompleteReadError, _PASSING),
    (boto.FlexibleChecksumError, Verdict(kind=_CORRUPT, tries=_MANY)),
    (boto.ReadTimeoutError, _PASSING),
    (boto.EventStreamError, _PASSING),
    (ResponseParserError, _PASSING),
    (aiohttp.ClientError, _PASSING),
    (asyncio.TimeoutError, _PASSING),
    (OSError, _PASSING),
    (boto.ParamValidationError, Verdict(kind=_INTERNAL)),
)

_OF_ROLES = {
    "AssumeRole": "sts:AssumeRole",
    "AssumeRoleWithWebIdentity": "the role's trust in the web identity",
}
"""What operations need that are no operations of S3."""

FOREIGN_ERRORS = (
    boto.BotoCoreError,
    boto.ClientError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)
"""What the client library raises; TimeoutError is an OSError."""


def code_of(error: BaseException) -> str:
    """The server's error code; the status as text if there is none, "" for network errors."""
    if not isinstance(error, boto.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: BaseException) -> int:
    """The HTTP status, 0 where there was no answer."""
    if not isinstance(error, boto.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def verdict_of(error: BaseException) -> Verdict:
    """The row of the table for an error."""
    if isinstance(error, boto.ClientError):
        code = code_of(error)
        if code == "404" and error.operation_name in _BARE_404:
            return _BARE_404[error.operation_name]
        return verdict_of_code(code, status_of(error))
    for kind, verdict in _BY_CLASS:
        if isinstance(error, kind):
            return verdict
    return Verdict(kind=_UNAVAILABLE)


def verdict_of_code(code: str, status: int) -> Verdict:
    """The same for a code and a status."""
    if code in BY_CODE:
        return BY_CODE[code]
    if code.startswith("KMS."):
        return _KMS
    status = int(code) if code.isdecimal() else status
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return _PASSING if status >= 500 else Verdict(kind=_INVALID)


def error_of_s3(error: BaseException, operation: str, location: str) -> RemoteStorageError:
    """The error to raise from `error`; `location` is the bucket with the key."""
    verdict = verdict_of(error)
    operation = str(getattr(error, "operation_name", operation))
    hint = verdict.hint
    needed = permission_of(operation) or _OF_ROLES.get(operation)
    if verdict is _DENIED and needed is not None:
        hint = f"it needs the permission {needed}"
    message = f"{operation} {location}: {_reason(error)}"
    return error_of_kind(verdict.kind, f"{message}; {hint}" if hint else message)


def _reason(error: BaseException) -> str:
    if isinstance(error, boto.ClientError):
        status, code = status_of(error), code_of(error)
        return f"{code} (HTTP {status})" if status and code != str(status) else f"HTTP {code}"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{type(error).__name__} of {error.filename}"
    return type(error).__name__
