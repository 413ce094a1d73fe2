"""Evaluates what the set-up of a store means for the segments in it: alarms, hints, facts. Pure.

An alarm is a risk to data that a topic's total retention promises to keep, or to the store's
identity (H11). A hint is something that costs money or makes a delete fail. kip405.contracts
defines the findings. The values here are also what `rlm status` and `rlm doctor` show of a store.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from kip405.contracts import NEEDED_VERSIONS, UNFIT_VERSIONS, FindingKind, StoreFinding
from kip405.ids import Uuid
from rsm_plugins.layout.keys import IDENTITY_NAME, is_entropy_folder, with_prefix

DAY_MS = 86_400_000
UNLIMITED = -1
_NOT_THERE = ("absent", "disabled", "none", "not supported", "never enabled")
_UNKNOWN = "unknown"
_NONCURRENT = "noncurrent"
_TRANSITION = "transition"
_NAMED_TOPICS = 5


class Level(enum.Enum):
    """Levels, the most severe first."""

    ALARM = "alarm"
    HINT = "hint"
    UNKNOWN = "unknown"
    FACT = "fact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence for an operator."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic whose segments are in the store, or go there next.

    `retention_ms` is the total retention, -1 = unlimited. `folder` is cluster id/topic-topicId, ""
    = not known.
    """

    name: str
    retention_ms: int
    folder: str = ""


def prefix_of(uri: str, configured: str | None) -> str | None:
    """The prefix of every key: as configured here, else as an s3:// uri says, else not known."""
    if configured is None and uri.startswith("s3://"):
        return urlsplit(uri).path.strip("/")
    return configured


def evaluate(
    findings: Iterable[StoreFinding], topics: Sequence[StoredTopic], prefix: str | None
) -> tuple[Verdict, ...]:
    """The meaning of the findings for these topics below the store's prefix, the most severe first.
    If the prefix is not known (None), every rule concerns every topic.
    """
    seen = tuple(findings)
    noncurrent = [finding for finding in seen if _is_noncurrent(finding)]
    verdicts = [
        one
        for finding in seen
        if finding not in noncurrent
        for one in _evaluate(finding, topics, prefix, noncurrent)
    ]
    if not seen:
        verdicts.append(_verdict(Level.UNKNOWN, "the store reports nothing of its set-up"))
    order = list(Level)
    return tuple(sorted(verdicts, key=lambda one: order.index(one.level)))


def _is_noncurrent(finding: StoreFinding) -> bool:
    """Whether the rule is for the noncurrent versions that deletes leave in a versioned bucket."""
    is_rule = finding.kind is FindingKind.LIFECYCLE_EXPIRY
    return is_rule and finding.state.lower().startswith(_NONCURRENT)


def _evaluate(
    finding: StoreFinding,
    topics: Sequence[StoredTopic],
    prefix: str | None,
    noncurrent: Sequence[StoreFinding],
) -> tuple[Verdict, ...]:
    if finding.state.lower().startswith(_UNKNOWN):
        return (_verdict(Level.UNKNOWN, f"{_words(finding.kind)}: {finding.state}"),)
    is_there = not finding.state.lower().startswith(_NOT_THERE)
    match finding.kind:
        case FindingKind.LIFECYCLE_EXPIRY if is_there:
            return _expiry(finding, topics, prefix)
        case FindingKind.LIFECYCLE_EXPIRY:
            return (_verdict(Level.FACT, "no lifecycle rule removes objects"),)
        case FindingKind.MULTIPART_ABORT:
            return (_multipart(finding, is_there=is_there),)
        case FindingKind.VERSIONING:
            return (_versioning(finding, noncurrent),)
        case FindingKind.OBJECT_LOCK:
            return (_lock(finding, is_there=is_there),)
        case FindingKind.REPLICATION if finding.value == 1:
            return (_verdict(Level.HINT, "one copy only: a disk that fails takes segments along"),)
    return (_verdict(Level.FACT, _plain(finding)),)


def _expiry(
    finding: StoreFinding, topics: Sequence[StoredTopic], prefix: str | None
) -> tuple[Verdict, ...]:
    rule = f"a lifecycle rule for keys {_keys(finding.applies_to)}"
    is_move = finding.state.lower().startswith(_TRANSITION)
    what = f"archives objects ({finding.state}), unreadable" if is_move else "removes objects"
    when = f"{what} after {finding.days} d"
    if finding.days is None:
        when = f"{what} ({finding.state})"
    verdicts = []
    short = [
        topic
        for topic in topics
        if _is_kept_longer(finding, topic) and concerns(finding.applies_to, prefix, topic.folder)
    ]
    if short:
        names = ", ".join(_promise(topic) for topic in short[:_NAMED_TOPICS])
        more = f" and {len(short) - _NAMED_TOPICS} more" if len(short) > _NAMED_TOPICS else ""
        verdicts.append(
            _verdict(
                Level.ALARM,
                f"{rule} {when}, before their time: {names}{more}; take the rule away, or limit "
                "it to other keys",
            )
        )
    identity = with_prefix(prefix or "", IDENTITY_NAME)
    if prefix is None or identity.startswith(finding.applies_to):
        verdicts.append(
            _verdict(
                Level.ALARM,
                f"{rule} {when}, {identity} among them: without it the store is not ours and "
                "nothing is copied or trimmed",
            )
        )
    return tuple(verdicts) or (_verdict(Level.FACT, f"{rule} {when}: nothing of ours too early"),)


def _is_kept_longer(finding: StoreFinding, topic: StoredTopic) -> bool:
    return (
        finding.days is None
        or topic.retention_ms == UNLIMITED
        or finding.days * DAY_MS < topic.retention_ms
    )


def concerns(applies_to: str, prefix: str | None, folder: str) -> bool:
    """Whether a rule for keys that begin with `applies_to` may apply to a topic's objects. Any
    entropy digits may come between prefix and folder; an unknown prefix or folder may match.
    """
    if prefix is None or not folder:
        return True
    base = f"{prefix}/" if prefix else ""
    if base.startswith(applies_to):
        return True
    if not applies_to.startswith(base):
        return False
    rest = applies_to.removeprefix(base)
    digits, slash, behind = rest.partition("/")
    if is_entropy_folder(digits) and (not slash or _overlap(behind, f"{folder}/")):
        return True
    return _overlap(rest, f"{folder}/")


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _promise(topic: StoredTopic) -> str:
    if topic.retention_ms == UNLIMITED:
        return f"{topic.name} (kept without limit)"
    return f"{topic.name} (kept {topic.retention_ms / DAY_MS:g} d)"


def _multipart(finding: StoreFinding, *, is_there: bool) -> Verdict:
    if is_there:
        after = "" if finding.days is None else f" after {finding.days} d"
        return _verdict(
            Level.FACT,
            f"uploads that were given up are removed{after} ({_keys(finding.applies_to)})",
        )
    return _verdict(
        Level.HINT,
        "no rule removes multipart uploads that were given up; the plugin aborts its own, but a "
        "rule AbortIncompleteMultipartUpload after 7 d catches what a lost plugin leaves",
    )


def _versioning(finding: StoreFinding, noncurrent: Sequence[StoreFinding]) -> Verdict:
    if finding.state.startswith(UNFIT_VERSIONS):
        return _verdict(Level.ALARM, f"versioning is {finding.state}")
    if finding.state == NEEDED_VERSIONS:
        return _verdict(
            Level.FACT,
            f"versioning is {finding.state}; no rule may end noncurrent versions "
            f"{_keys(finding.applies_to)}. What comes there after the deletion of its attempt is "
            'listed by nobody: docs/pinterest.md, "What may stay in a bucket"',
        )
    if finding.state.lower() != "enabled":
        return _verdict(Level.FACT, f"versioning: {finding.state}")
    if not noncurrent:
        return _verdict(
            Level.HINT,
            "versioning is on and no rule removes noncurrent versions: what is deleted stays and "
            "is paid for; add NoncurrentVersionExpiration",
        )
    rules = ", ".join(
        f"{_keys(one.applies_to)} after {one.days} d" for one in noncurrent if one.days is not None
    )
    return _verdict(Level.FACT, f"versioning is on, noncurrent versions are removed: {rules}")


def _lock(finding: StoreFinding, *, is_there: bool) -> Verdict:
    if not is_there:
        return _verdict(Level.FACT, "no object lock")
    if finding.days is None:
        return _verdict(Level.FACT, f"object lock: {finding.state}, without a default period")
    return _verdict(
        Level.HINT,
        f"object lock ({finding.state}): nothing can be deleted for good before it is "
        f"{finding.days} d old; deletes before that fail or leave versions that are paid for",
    )


def _plain(finding: StoreFinding) -> str:
    return f"{_words(finding.kind)}: {finding.state}"


def _words(kind: FindingKind) -> str:
    return kind.value.replace("_", " ")


def _keys(applies_to: str) -> str:
    return f"below {applies_to!r}" if applies_to else "of the whole bucket"


def _verdict(level: Level, text: str) -> Verdict:
    return Verdict(level=level, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """`name` is empty if only the ledger knows the store; `segments` and `size_bytes` count
    FINISHED ones.
    """

    name: str = ""
    store_id: Uuid | None = None
    plugin: str = ""
    uri: str = ""
    problem: str = ""
    segments: int = 0
    size_bytes: int = 0
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a store reported and what it means; `problem` says why it reported nothing."""

    name: str
    uri: str = ""
    findings: tuple[StoreFinding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    problem: str = ""

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.verdicts if one.level is Level.ALARM)
