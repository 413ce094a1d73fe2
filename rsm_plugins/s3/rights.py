"""The least rights of each role in a bucket: one table, and the policies that follow from it. Pure.

The page docs/reference/store-rights.md, `rlm bucket-policy`, and the permission that an error names
all come from `RIGHTS`. Only services and commands that name a store ask S3: Spark, clients of the
proxy and callers of the API ask services, so they need no right in a bucket.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kip405.errors import Invalid
from rsm_plugins.layout.keys import check_prefix, with_prefix


class StoreRole(Enum):
    """Who asks a store with credentials of its own."""

    SERVICE = "service"
    READER = "reader"


class Resource(Enum):
    """What a right is on; the value completes a sentence."""

    BUCKET = "the bucket"
    OBJECTS = "objects below the prefix"
    KEY = "the KMS key, if there is one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One row: the IAM action that an operation of S3 needs on a resource. `needed_by` is the code
    that sends it, `without` what a lack of the action stops.
    """

    operation: str
    action: str
    resource: Resource
    roles: tuple[StoreRole, ...]
    needed_by: str
    without: str


_SERVICE = (StoreRole.SERVICE,)
_BOTH = (StoreRole.SERVICE, StoreRole.READER)
_NOT_COPIED = "Nothing is copied."
_NOT_DELETED = "What has expired stays, and is paid for."
_UPLOADS_STAY = "Parts of copies that failed stay, and are paid for."
_UNKNOWN = "`rlm doctor --store` shows `unknown`."


def _rows(
    resource: Resource, roles: tuple[StoreRole, ...], *rows: tuple[str, str, str, str]
) -> Iterator[Right]:
    for operation, action, needed_by, without in rows:
        yield Right(
            operation=operation,
            action=action,
            resource=resource,
            roles=roles,
            needed_by=f"rsm_plugins/s3/{needed_by}",
            without=without,
        )


RIGHTS: tuple[Right, ...] = (
    *_rows(
        Resource.BUCKET,
        _BOTH,
        (
            "ListObjectsV2",
            "s3:ListBucket",
            "objects.py",
            "S3 refuses a missing key instead of saying that it is missing, so the store is "
            "unavailable as soon as one is asked for; nothing is found by listing.",
        ),
    ),
    *_rows(
        Resource.BUCKET,
        _SERVICE,
        ("ListMultipartUploads", "s3:ListBucketMultipartUploads", "uploads.py", _NOT_DELETED),
        ("GetBucketVersioning", "s3:GetBucketVersioning", "findings.py", _UNKNOWN),
        (
            "GetObjectLockConfiguration",
            "s3:GetBucketObjectLockConfiguration",
            "findings.py",
            _UNKNOWN,
        ),
        (
            "GetBucketLifecycleConfiguration",
            "s3:GetLifecycleConfiguration",
            "findings.py",
            "A rule that expires objects too early is not noticed: `rlm doctor --store` shows "
            "`unknown`.",
        ),
    ),
    *_rows(
        Resource.OBJECTS,
        _BOTH,
        ("GetObject", "s3:GetObject", "objects.py", "The store is unavailable."),
    ),
    *_rows(
        Resource.OBJECTS,
        _SERVICE,
        ("HeadObject", "s3:GetObject", "objects.py", "No copy is proved: nothing is trimmed."),
        ("PutObject", "s3:PutObject", "objects.py", _NOT_COPIED),
        ("CreateMultipartUpload", "s3:PutObject", "uploads.py", _NOT_COPIED),
        ("UploadPart", "s3:PutObject", "uploads.py", _NOT_COPIED),
        ("CompleteMultipartUpload", "s3:PutObject", "uploads.py", _NOT_COPIED),
        ("AbortMultipartUpload", "s3:AbortMultipartUpload", "uploads.py", _UPLOADS_STAY),
        ("ListParts", "s3:ListMultipartUploadParts", "uploads.py", _UPLOADS_STAY),
        ("DeleteObject", "s3:DeleteObject", "objects.py", _NOT_DELETED),
        ("DeleteObjects", "s3:DeleteObject", "objects.py", _NOT_DELETED),
    ),
    *_rows(
        Resource.KEY,
        _SERVICE,
        ("PutObject", "kms:GenerateDataKey", "objects.py", _NOT_COPIED),
        ("CreateMultipartUpload", "kms:GenerateDataKey", "uploads.py", _NOT_COPIED),
        ("UploadPart", "kms:Decrypt", "uploads.py", _NOT_COPIED),
    ),
    *_rows(
        Resource.KEY,
        _BOTH,
        ("GetObject", "kms:Decrypt", "objects.py", "The store is unavailable."),
    ),
)

_NOT_WRITTEN = "Nothing is copied in the layout `pinterest`."
VERSION_RIGHTS: tuple[Right, ...] = (
    *_rows(
        Resource.BUCKET,
        _BOTH,
        (
            "ListObjectVersions",
            "s3:ListBucketVersions",
            "versions.py",
            "Segments in the layout `pinterest` cannot be deleted, nor those of unfinished copies "
            "read.",
        ),
    ),
    *_rows(
        Resource.OBJECTS,
        _BOTH,
        (
            "GetObject",
            "s3:GetObjectVersion",
            "objects.py",
            "Segments in the layout `pinterest` are unavailable.",
        ),
    ),
    *_rows(
        Resource.OBJECTS,
        _SERVICE,
        ("HeadObject", "s3:GetObjectVersion", "versions.py", _NOT_WRITTEN),
        ("DeleteObject", "s3:DeleteObjectVersion", "versions.py", _NOT_DELETED),
    ),
)
"""What the layout `pinterest` needs beside `RIGHTS`."""

_PRINCIPAL = re.compile(r"\*|[0-9]{12}|arn:[a-z0-9-]+:(?:iam|sts)::[^\s:*]*:[^\s*]+")
_ASKED_FOR_KEYS = ("GetObject", "HeadObject")
"""Their refusal may mean that the key is missing and the bucket may not be listed."""


def permission_of(operation: str) -> str | None:
    """What a refused operation of S3 needs, for an error; None where the table does not know it."""
    for row in RIGHTS:
        if row.operation == operation and row.resource is not Resource.KEY:
            if operation in _ASKED_FOR_KEYS:
                return f"{row.action}, and s3:ListBucket, without which a missing key is refused"
            return row.action
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScope:
    """What a policy is for: a bucket, the prefix of the store's keys, and the KMS key of objects;
    with `versions`, for the layout `pinterest` too.

    Invalid: the prefix or the ARN of the key cannot be one.
    """

    bucket: str
    prefix: str = ""
    kms_key: str | None = None
    versions: bool = False

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
        if self.kms_key is not None and not self.kms_key.startswith("arn:"):
            raise Invalid(f"the KMS key must be given by its ARN, got {self.kms_key!r}")

    def arn(self, resource: Resource) -> str | None:
        """The resource as a policy names it; None where there is no key."""
        if resource is Resource.KEY:
            return self.kms_key
        bucket = f"arn:aws:s3:::{self.bucket}"
        if resource is Resource.BUCKET:
            return bucket
        letters = self.prefix.replace("*", "${*}")  # what a policy calls an asterisk
        return f"{bucket}/{with_prefix(letters, '*')}"


def check_principal(principal: str) -> str:
    """The principal itself; Invalid unless Amazon's policies can name it so."""
    if not _PRINCIPAL.fullmatch(principal):
        raise Invalid(
            "--principal: must be an ARN such as arn:aws:iam::123456789012:role/NAME, an account "
            f"id of 12 digits, or * for everybody, got {principal!r}; where a server names its "
            "accounts otherwise, put the name into the printed policy"
        )
    return principal


def actions_of(role: StoreRole, resource: Resource, *, versions: bool = False) -> tuple[str, ...]:
    """The actions that a role needs on a resource, in the order of the table; with `versions`, for
    the layout `pinterest` too.
    """
    table = (*RIGHTS, *VERSION_RIGHTS) if versions else RIGHTS
    rows = (row for row in table if role in row.roles and row.resource is resource)
    return tuple(dict.fromkeys(row.action for row in rows))


def policy(role: StoreRole, scope: PolicyScope, principal: str | None = None) -> Mapping[str, Any]:
    """The IAM policy of a role; with the ARN of a principal the policy of the bucket that gives it
    the same rights. Invalid: no policy of a bucket can give rights on a key.
    """
    if principal is not None and scope.kms_key is not None:
        raise Invalid("a policy of a bucket gives no right on a KMS key: use the policy of the key")
    statements = []
    for resource in Resource:
        arn = scope.arn(resource)
        if arn is not None:
            who = {} if principal is None else {"Principal": {"AWS": [principal]}}
            actions = list(actions_of(role, resource, versions=scope.versions))
            statements.append({"Effect": "Allow", **who, "Action": actions, "Resource": arn})
    return {"Version": "2012-10-17", "Statement": statements}
