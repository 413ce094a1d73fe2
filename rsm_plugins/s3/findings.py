"""The set-up of the bucket, as far as it matters to the objects of this product in it (H11).

States: versioning "Enabled" | "Suspended" | "absent". Object lock is "absent" or the mode
("COMPLIANCE", "GOVERNANCE"; "Enabled" without a default retention). Lifecycle expiry is one finding
for each rule that can affect this store's keys: "Expiration" for objects, "Transition to <class>"
for a move of objects into an archive where they cannot be read, "NoncurrentVersionExpiration" for
what deletes leave in a versioned bucket; "absent" if there is none. Abort of unfinished uploads is
alike: "AbortIncompleteMultipartUpload". What cannot be read is "unknown: <why>".
"""

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from kip405.contracts import NEEDED_VERSIONS, UNFIT_VERSIONS, FindingKind, StoreFinding
from kip405.errors import RemoteStorageError
from rsm_plugins.s3.calls import together
from rsm_plugins.s3.errors import code_of
from rsm_plugins.s3.objects import Objects
from rsm_plugins.s3.settings import STORAGE_CLASSES

ABSENT = "absent"
EXPIRATION = "Expiration"
NONCURRENT = "NoncurrentVersionExpiration"
ABORT = "AbortIncompleteMultipartUpload"
TRANSITION = "Transition"
ENABLED = "Enabled"
_NONCURRENT_ACTIONS = (NONCURRENT, "NoncurrentVersionTransitions")
_WITHOUT_RULES = ("unknown: NotImplemented", "unknown: MethodNotAllowed")
"""A server that has no lifecycle rules deletes nothing by them."""
_EXPIRING = (EXPIRATION, TRANSITION, NONCURRENT)
_NONE_SET = ("NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError")
_DAYS_OF_YEAR = 365
_QUESTIONS = _ABOUT_VERSIONING, _, _ABOUT_LIFECYCLE = (
    ("GetBucketVersioning", "get_bucket_versioning"),
    ("GetObjectLockConfiguration", "get_object_lock_configuration"),
    ("GetBucketLifecycleConfiguration", "get_bucket_lifecycle_configuration"),
)
_Answer = Mapping[str, Any] | str


async def findings_with_versions(
    objects: Objects, prefix: str, versions_prefix: str, further: Awaitable[str | None]
) -> tuple[StoreFinding, ...]:
    """The same of a bucket below one of whose prefixes segments are versions of objects. `further`:
    what else is wrong with it for them.
    """
    versioning, lock, lifecycle = await _asked(objects, *_QUESTIONS)
    problem = _problem(objects, versioning, lifecycle, versions_prefix)
    try:
        problem = await further or problem
    except RemoteStorageError as error:
        problem = problem or f"it is not known whether the layout pinterest can be written: {error}"
    state = NEEDED_VERSIONS if problem is None else f"{UNFIT_VERSIONS}: {problem}"
    return (
        StoreFinding(kind=FindingKind.VERSIONING, state=state, applies_to=versions_prefix),
        *_further_findings(lock, lifecycle, (prefix, versions_prefix)),
    )


async def findings_of(objects: Objects, prefix: str) -> tuple[StoreFinding, ...]:
    """All findings about keys below it; one that cannot be read says so and hides no other."""
    versioning, lock, lifecycle = await _asked(objects, *_QUESTIONS)
    return _versioning(versioning), *_further_findings(lock, lifecycle, (prefix,))


async def problem_of_versions(objects: Objects, prefix: str) -> str | None:
    """Why versions of objects below a prefix are not safe until they are deleted, and what to do;
    None: they are.
    """
    versioning, lifecycle = await _asked(objects, _ABOUT_VERSIONING, _ABOUT_LIFECYCLE)
    return _problem(objects, versioning, lifecycle, prefix)


def _problem(objects: Objects, versioning: _Answer, lifecycle: _Answer, prefix: str) -> str | None:
    state = _versioning(versioning).state
    if state == ENABLED:
        return problem_of_rules(lifecycle, prefix)
    return (
        f"the layout pinterest needs versioning, which is {state}: aws s3api "
        f"put-bucket-versioning --bucket {objects.bucket} "
        f"--versioning-configuration Status={ENABLED}"
    )


def problem_of_rules(lifecycle: _Answer, prefix: str) -> str | None:
    """The same of the lifecycle rules, or of the reason why they cannot be read."""
    if isinstance(lifecycle, str):
        if lifecycle in _WITHOUT_RULES:
            return None
        return (
            "it is not known whether a lifecycle rule deletes noncurrent versions, and with them "
            f"segments of the layout pinterest ({lifecycle}): it needs the permission "
            "s3:GetLifecycleConfiguration"
        )
    for rule in lifecycle.get("Rules", ()):
        for action in _NONCURRENT_ACTIONS:
            if rule.get(action) and _may_touch(rule, prefix):
                return (
                    f"the lifecycle rule {action} for keys {_prefix_of(rule)!r} takes segments of "
                    "the layout pinterest away, as their versions are not always the current "
                    "ones: end it, or limit it to other keys"
                )
    return None


def _further_findings(
    lock: _Answer, lifecycle: _Answer, prefixes: tuple[str, ...]
) -> tuple[StoreFinding, ...]:
    return (
        _object_lock(lock),
        *_lifecycle(lifecycle, prefixes, FindingKind.LIFECYCLE_EXPIRY, _EXPIRING),
        *_lifecycle(lifecycle, prefixes, FindingKind.MULTIPART_ABORT, (ABORT,)),
    )


async def _asked(objects: Objects, *questions: tuple[str, str]) -> Sequence[_Answer]:
    return await together(_answer(objects, operation, method) for operation, method in questions)


async def _answer(objects: Objects, operation: str, method: str) -> _Answer:
    """The answer, empty if nothing is configured; the reason if it cannot be read."""

    async def request(client: Any) -> Any:
        try:
            return await getattr(client, method)(Bucket=objects.bucket)
        except ClientError as error:
            if code_of(error) in _NONE_SET:
                return {}
            raise

    try:
        answer: Mapping[str, Any] = await objects.calls.run(operation, objects.bucket, request)
    except RemoteStorageError as error:
        cause = error.__cause__
        reason = code_of(cause) if isinstance(cause, ClientError) else ""
        return f"unknown: {reason or error}"
    return answer


def _versioning(answer: _Answer) -> StoreFinding:
    state = answer if isinstance(answer, str) else str(answer.get("Status", ABSENT))
    return StoreFinding(kind=FindingKind.VERSIONING, state=state)


def _object_lock(answer: _Answer) -> StoreFinding:
    kind = FindingKind.OBJECT_LOCK
    if isinstance(answer, str):
        return StoreFinding(kind=kind, state=answer)
    setup = answer.get("ObjectLockConfiguration", {})
    default = setup.get("Rule", {}).get("DefaultRetention", {})
    days = default.get("Days") or default.get("Years", 0) * _DAYS_OF_YEAR or None
    state = default.get("Mode") or setup.get("ObjectLockEnabled") or ABSENT
    return StoreFinding(kind=kind, state=str(state), days=days)


def _lifecycle(
    answer: _Answer,
    prefixes: tuple[str, ...],
    kind: FindingKind,
    actions: tuple[str, ...],
) -> tuple[StoreFinding, ...]:
    if isinstance(answer, str):
        return (StoreFinding(kind=kind, state=answer),)
    found = tuple(
        finding
        for rule in answer.get("Rules", ())
        if any(_may_touch(rule, prefix) for prefix in prefixes)
        for finding in _actions(rule, kind, actions)
    )
    return found or (StoreFinding(kind=kind, state=ABSENT),)


def _actions(
    rule: Mapping[str, Any], kind: FindingKind, actions: tuple[str, ...]
) -> Iterator[StoreFinding]:
    for action, setup in _setups(rule, actions):
        days = setup.get("Days", setup.get("NoncurrentDays", setup.get("DaysAfterInitiation")))
        name = f"{action} to {setup['StorageClass']}" if action == TRANSITION else action
        state = f"{name} on {setup['Date']:%Y-%m-%d}" if "Date" in setup else name
        yield StoreFinding(kind=kind, state=state, days=days, applies_to=_prefix_of(rule))


def _setups(
    rule: Mapping[str, Any], actions: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The actions of a rule among these, with details; transitions only to classes that cannot be
    read at once.
    """
    for action in actions:
        if action == TRANSITION:
            for setup in rule.get("Transitions", ()):
                if setup.get("StorageClass") not in STORAGE_CLASSES:
                    yield action, {"StorageClass": "another class", **setup}
        elif set(setup := rule.get(action) or {}) - {"ExpiredObjectDeleteMarker"}:
            yield action, setup


def _may_touch(rule: Mapping[str, Any], prefix: str) -> bool:
    """Whether a rule is in force for some key below our prefix; our objects have no tags."""
    if rule.get("Status") != "Enabled":
        return False
    filters = rule.get("Filter", {})
    if "Tag" in filters or filters.get("And", {}).get("Tags"):
        return False
    ours, theirs = (f"{prefix}/" if prefix else ""), _prefix_of(rule)
    return ours.startswith(theirs) or theirs.startswith(ours)


def _prefix_of(rule: Mapping[str, Any]) -> str:
    filters = rule.get("Filter", {})
    found = filters.get("Prefix", filters.get("And", {}).get("Prefix", rule.get("Prefix", "")))
    return str(found or "")
