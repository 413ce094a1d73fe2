"""The model of problems: kinds, severities, and since when each problem exists (H38).

Status, health, metrics, exit codes and log lines are all derived from it. A rule returns what it
currently finds as a `Finding`; `ProblemRegister` turns findings into `Problem`s: since when they
last, which appeared, which ended. `rlm/service/problems.py` evaluates the rules periodically,
and everything that operators see is read from there. Pure.

To add a problem:

1. Give it a member of `ProblemKind` and a row in `KINDS`. The word is an interface (label `kind` of
   `rlm_problems`, field `kind` in JSON): it never changes. One kind has one severity and one risk,
   which says what it means for the data (rlm.plans.safety). Run `make reference`, which writes
   docs/reference/problems.md.
2. Write the rule as a pure function of values in `rlm/plans/problem_rules.py` that returns
   findings; decide by what should have happened and did not. What is not known is None, and is a
   finding of its own. Times that a rule compares are monotonic; only `since_ms` is wall time.
3. Pass the values in from `rlm/service/problems.py`, which collects them from the components
   of the service. A component that already knows its problems may have a method that returns
   findings instead; name it among `others` where `ServiceSources` is created. A source never waits
   and never raises.
4. The subject names what the problem is about. It is constant as long as the problem lasts, since
   kind and subject identify a problem: "orders-0", "topic orders", "store hot", "node 2". What
   changes from one time to the next (ages, counts) belongs in the text, which is one sentence and
   says what to do. `topic` is set where the problem is about one topic or one of its partitions.

The module also has sizes, times and durations in words, for people.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime


class Severity(enum.Enum):
    """ALARM: data is in danger, or what should be done is not done; an operator must act. WARNING:
    it will become an alarm, or the risk was chosen deliberately. NOTE: it ends by itself, or
    becomes an alarm.
    """

    ALARM = "alarm"
    WARNING = "warning"
    NOTE = "note"


class Risk(enum.Enum):
    """What a problem means for the data of topics. NONE: no record is in danger by it. AT_RISK:
    what should keep records safe does not work, or is not known to work. LOST: readers do not get
    records that they should get, and waiting does not bring them back.
    """

    NONE = "none"
    AT_RISK = "at-risk"
    LOST = "lost"


class ProblemKind(enum.Enum):
    """The words that identify a problem in metrics and JSON."""

    STARTING = "starting"
    METADATA = "metadata"
    METADATA_LOST = "metadata-lost"
    CLOCK_SKEW = "clock-skew"
    HEARTBEAT = "heartbeat"
    RIVAL_SERVICE = "rival-service"
    BROKER_UNKNOWN = "broker-unknown"
    KAFKA_REFUSED = "kafka-refused"
    ACL_MISSING = "acl-missing"
    HUNG_THREADS = "hung-threads"
    PROCESS_MISSING = "process-missing"
    PROCESS_ENDS = "process-ends"
    CERTIFICATE_ENDED = "certificate-ended"
    CERTIFICATE_ENDS_SOON = "certificate-ends-soon"
    CERTIFICATE_UNUSABLE = "certificate-unusable"
    PEER_ABSENT = "peer-absent"
    PEER_UNREACHABLE = "peer-unreachable"
    LOG_DIR_LOW = "log-dir-low"
    LOG_DIR_FILLS = "log-dir-fills"
    RETENTION_GIVEN_BACK = "retention-given-back"
    LOG_DIR_UNKNOWN = "log-dir-unknown"
    NO_STORE = "no-store"
    STORE_UNAVAILABLE = "store-unavailable"
    STORE_REFUSES_WRITES = "store-refuses-writes"
    STORE_SETUP = "store-setup"
    TOPIC_RECREATED = "topic-recreated"
    TOPIC_NOT_SEEN = "topic-not-seen"
    DELETION_DUE = "deletion-due"
    DELETION_WAITS = "deletion-waits"
    RETENTION_REVERTED = "retention-reverted"
    LAG_UNKNOWN = "lag-unknown"
    NOTHING_COPIED = "nothing-copied"
    PARTITION_LEFT_OUT = "partition-left-out"
    COPY_REFUSED = "copy-refused"
    CANNOT_COPY = "cannot-copy"
    OPEN_TRANSACTION = "open-transaction"
    SNAPSHOT_MISSING = "snapshot-missing"
    PARTITION_FROZEN = "partition-frozen"
    TRIM_REFUSED = "trim-refused"
    TRIM_BLOCKED = "trim-blocked"
    TRIM_STOPPED = "trim-stopped"
    TRIM_UNKNOWN = "trim-unknown"
    FOREIGN_LOG_START = "foreign-log-start"
    EXPIRY_STOPPED = "expiry-stopped"
    CLEANUP_REFUSED = "cleanup-refused"
    LOSS_NEAR = "loss-near"
    SEGMENT_LOST = "segment-lost"
    OFFSETS_MISSING = "offsets-missing"
    OFFSETS_DISORDERED = "offsets-disordered"
    SEGMENT_UNLISTED = "segment-unlisted"
    NOT_VERIFIED = "not-verified"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """One row of docs/reference/problems.md; `meaning` says what is wrong."""

    severity: Severity
    risk: Risk
    meaning: str


def _alarm(meaning: str, risk: Risk = Risk.AT_RISK) -> KindRow:
    """Data is at risk by an alarm unless its row says something else."""
    return KindRow(severity=Severity.ALARM, risk=risk, meaning=meaning)


def _warning(meaning: str, risk: Risk) -> KindRow:
    return KindRow(severity=Severity.WARNING, risk=risk, meaning=meaning)


KINDS: Mapping[ProblemKind, KindRow] = {
    ProblemKind.STARTING: KindRow(
        severity=Severity.NOTE,
        risk=Risk.AT_RISK,  # unknown is not safe (H38)
        meaning="The service has just started: ledger, settings or stores are not known yet.",
    ),
    ProblemKind.METADATA: _alarm(
        "Ledger or settings have not been read to their end, or cannot be trusted: nothing is "
        "trimmed or deleted."
    ),
    ProblemKind.METADATA_LOST: _alarm(
        "Ledger or settings lost records that had been read: nothing is trimmed or deleted."
    ),
    ProblemKind.CLOCK_SKEW: _alarm("A service's clock differs from the brokers' by too much."),
    ProblemKind.HEARTBEAT: _alarm(
        "This service cannot publish its heartbeat: its peers do not trim partitions that "
        "they share with it."
    ),
    ProblemKind.RIVAL_SERVICE: _alarm("A second service works for the same broker."),
    ProblemKind.BROKER_UNKNOWN: _alarm(
        "The broker does not say what it leads: nothing is known of its partitions."
    ),
    ProblemKind.KAFKA_REFUSED: _alarm(
        "A broker and the service's own Kafka clients do not accept each other: TLS, certificates "
        "or SASL. They try again and again."
    ),
    ProblemKind.ACL_MISSING: _alarm(
        "The broker refuses the service, or the reader, an operation that it needs."
    ),
    ProblemKind.HUNG_THREADS: _alarm("Work on a disk or in a library does not return."),
    ProblemKind.PROCESS_MISSING: _alarm(
        "A proxy worker is away, or hangs: fewer processes than proxy.workers serve Kafka clients "
        "(H24).",
        Risk.NONE,
    ),
    ProblemKind.PROCESS_ENDS: _alarm(
        "A process of a service with proxy workers keeps ending, and is started again: clients of "
        "a worker reconnect each time, and without the core nothing remote is read (H24)."
    ),
    ProblemKind.CERTIFICATE_ENDED: _alarm(
        "A certificate that the service uses has ended or cannot be read."
    ),
    ProblemKind.CERTIFICATE_ENDS_SOON: _warning(
        "A certificate that the service uses ends soon.",
        Risk.NONE,
    ),
    ProblemKind.CERTIFICATE_UNUSABLE: _alarm(
        "Files of the proxy's TLS, or of the principals of the API, were replaced by files that "
        "cannot be used: the former ones stay in use, and a process that restarts serves no "
        "clients.",
        Risk.NONE,
    ),
    ProblemKind.PEER_ABSENT: _alarm(
        "A broker with a replica of an enabled topic has no live service: partitions that it "
        "shares with others are not trimmed, and those that it leads are not copied."
    ),
    ProblemKind.PEER_UNREACHABLE: _alarm(
        "A service that publishes its heartbeat does not answer the API: the status of its "
        "partitions is unknown."
    ),
    ProblemKind.LOG_DIR_LOW: _alarm(
        "A log directory of the broker has less free space than disk.min.free.bytes (H18)."
    ),
    ProblemKind.RETENTION_GIVEN_BACK: _alarm(
        "A broker's disk is nearly full, and its own retention acts on a topic of mode tier: it "
        "deletes uncopied records too (H18)."
    ),
    ProblemKind.LOG_DIR_FILLS: _warning(
        "A log directory of the broker is full soon, at the growth of the last hour.",
        Risk.AT_RISK,
    ),
    ProblemKind.LOG_DIR_UNKNOWN: _alarm(
        "The free space of a log directory of the broker cannot be read, or a log in one that is "
        "nearly full."
    ),
    ProblemKind.NO_STORE: _warning(
        "No store is configured: nothing is tiered.",
        Risk.NONE,
    ),
    ProblemKind.STORE_UNAVAILABLE: _alarm(
        "A store does not answer, is not the one that its name stands for, or is not "
        "configured while segments lie there."
    ),
    ProblemKind.STORE_REFUSES_WRITES: _alarm(
        "A store accepts no new segments (full, read-only, no permission)."
    ),
    ProblemKind.STORE_SETUP: _alarm("A store is set up so that it endangers its data."),
    ProblemKind.TOPIC_RECREATED: _alarm(
        "A topic was deleted and created again under its name: the new one is not tiered."
    ),
    ProblemKind.TOPIC_NOT_SEEN: _alarm(
        "The broker does not describe an enabled topic: nothing of it is copied or trimmed."
    ),
    ProblemKind.DELETION_DUE: _warning(
        "A topic was deleted, and its remote data will be deleted too; until then it can be kept.",
        Risk.AT_RISK,
    ),
    ProblemKind.DELETION_WAITS: _alarm(
        "The remote data of a deleted topic waits for an operator, or cannot be deleted (H7).",
        Risk.NONE,
    ),
    ProblemKind.RETENTION_REVERTED: _alarm(
        "The broker's own retention of a topic in mode tier is bounded: the broker may delete "
        "uncopied records, and nothing is trimmed."
    ),
    ProblemKind.LAG_UNKNOWN: _alarm(
        "The copy lag cannot be measured: the partition may not be copied at all."
    ),
    ProblemKind.NOTHING_COPIED: _alarm("There are closed segments, and none of them is copied."),
    ProblemKind.PARTITION_LEFT_OUT: _warning(
        "A program that embeds the RemoteLogManager has not added a partition that its broker "
        "leads: nothing of it is copied or trimmed.",
        Risk.AT_RISK,
    ),
    ProblemKind.COPY_REFUSED: _alarm(
        "An enabled topic's configuration forbids copying, e.g. its cleanup.policy."
    ),
    ProblemKind.CANNOT_COPY: _alarm(
        "A segment cannot be copied as it is; the segments after it wait."
    ),
    ProblemKind.OPEN_TRANSACTION: _warning(
        "Closed segments wait for an open transaction to end; nothing of them is copied before.",
        Risk.AT_RISK,
    ),
    ProblemKind.SNAPSHOT_MISSING: _warning(
        "A segment was copied without its producer snapshot.",
        Risk.NONE,
    ),
    ProblemKind.PARTITION_FROZEN: _alarm(
        "The leader's log and the remote copies contradict each other (H4)."
    ),
    ProblemKind.TRIM_REFUSED: _alarm(
        "A trim that was due was refused, e.g. because copies are gone from the store."
    ),
    ProblemKind.TRIM_BLOCKED: _alarm(
        "Nothing is trimmed while the disk fills beyond local retention."
    ),
    ProblemKind.TRIM_STOPPED: _warning(
        "Trim is off or frozen by command while the disk fills beyond local retention.",
        Risk.NONE,
    ),
    ProblemKind.TRIM_UNKNOWN: _warning(
        "It is unknown whether an abandoned trim was executed.",
        Risk.AT_RISK,
    ),
    ProblemKind.FOREIGN_LOG_START: _alarm("Somebody else moved the broker's log start (H1)."),
    ProblemKind.EXPIRY_STOPPED: _alarm(
        "Total retention deletes nothing, because the clocks of service and brokers disagree.",
        Risk.NONE,
    ),
    ProblemKind.CLEANUP_REFUSED: _alarm(
        "The rest of a failed copy is neither adopted nor deleted, because its objects in the "
        "store cannot be explained."
    ),
    ProblemKind.LOSS_NEAR: _alarm(
        "The broker's own retention deletes records soon that are not remote (H15)."
    ),
    ProblemKind.SEGMENT_LOST: _alarm(
        "A segment that the ledger lists as finished cannot be read.",
        Risk.LOST,
    ),
    ProblemKind.OFFSETS_MISSING: _alarm(
        "No tier has offsets that readers may ask for, and no hole is on record (H15).",
        Risk.LOST,
    ),
    ProblemKind.OFFSETS_DISORDERED: _alarm(
        "The offsets of a partition's tiers contradict each other, e.g. the remote log ends beyond "
        "the last stable offset."
    ),
    ProblemKind.SEGMENT_UNLISTED: _alarm(
        "A store has a whole segment above the remote log start that the ledger does not list: the "
        "ledger has lost its record (H6)."
    ),
    ProblemKind.NOT_VERIFIED: _warning(
        "The remote data of a partition was not verified for two intervals (verify.interval.ms).",
        Risk.AT_RISK,
    ),
    ProblemKind.OTHER: _alarm(
        "A service of another version reported a problem whose kind is unknown here."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule currently finds. `since_ms`: wall time if known, None = as first seen."""

    kind: ProblemKind
    subject: str
    text: str
    topic: str = ""
    since_ms: int | None = None

    @property
    def key(self) -> tuple[ProblemKind, str]:
        """Identifies a problem for as long as it lasts."""
        return self.kind, self.subject

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def risk(self) -> Risk:
        return KINDS[self.kind].risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Finding):
    """A finding that has lasted since a known time."""

    since_ms: int

    @property
    def line(self) -> str:
        """Subject and text, for people."""
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an update changed."""

    appeared: tuple[Problem, ...] = ()
    ended: tuple[Problem, ...] = ()


class ProblemRegister:
    """Problems by kind and subject; `current` has the alarms first."""

    def __init__(self) -> None:
        self._known: dict[tuple[ProblemKind, str], Problem] = {}

    @property
    def current(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._known.values(), key=_order))

    def update(self, findings: Iterable[Finding], now_ms: int) -> Changes:
        """Take the findings of one time (wall ms) as complete; problems that are not among them
        have ended.

        Findings of one kind and subject are one problem, with the texts of all.
        """
        found = _joined(findings)
        before = self._known
        self._known = {
            key: _problem(finding, before.get(key), now_ms) for key, finding in found.items()
        }
        return Changes(
            appeared=tuple(one for key, one in self._known.items() if key not in before),
            ended=tuple(one for key, one in before.items() if key not in found),
        )


_GRAVITY = tuple(Severity)


def health_of(problems: Iterable[Finding]) -> str:
    """The verdict in one word: `alarm`, `warning` or `well`; notes do not count."""
    severities = {problem.severity for problem in problems}
    grave = (Severity.ALARM, Severity.WARNING)
    return next((one.value for one in grave if one in severities), "well")


def about(problems: Iterable[Problem], topic: str) -> tuple[Problem, ...]:
    """Problems of a topic and those of no particular topic; all for an empty name."""
    return tuple(one for one in problems if topic == "" or one.topic in ("", topic))


def generate_docs() -> str:
    """The whole text of docs/reference/problems.md."""
    head = (
        "# Problems that `rlm serve` reports\n\n"
        "`rlm status` shows problems and ends with status 1 where there is an alarm. `/healthz` "
        "has them in its body, the metric `rlm_problems` counts them by kind, and the log has a "
        "line when one appears and one when it ends. Made from `rlm/plans/problems.py`; edit "
        "there.\n\n"
        "The third column is what `rlm status --health` makes of it: no record is in danger by it "
        "(none), what should keep records safe does not work or is not known to (at-risk), or "
        "readers do not get records that they should get (lost).\n\n"
        "| kind | severity | data | meaning |\n|---|---|---|---|\n"
    )
    rows = (
        f"| `{kind.value}` | {row.severity.value} | {row.risk.value} | {row.meaning} |\n"
        for kind, row in KINDS.items()
    )
    return head + "".join(rows)


def _joined(findings: Iterable[Finding]) -> dict[tuple[ProblemKind, str], Finding]:
    found: dict[tuple[ProblemKind, str], list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.key, []).append(finding)
    return {key: _one(several) for key, several in found.items()}


def _one(several: list[Finding]) -> Finding:
    first = several[0]
    since = [one.since_ms for one in several if one.since_ms is not None]
    return Finding(
        kind=first.kind,
        subject=first.subject,
        text="; ".join(dict.fromkeys(one.text for one in several)),
        topic=first.topic,
        since_ms=min(since, default=None),
    )


def _problem(finding: Finding, before: Problem | None, now_ms: int) -> Problem:
    since_ms = finding.since_ms
    if since_ms is None:
        since_ms = before.since_ms if before is not None else now_ms
    return Problem(
        kind=finding.kind,
        subject=finding.subject,
        text=finding.text,
        topic=finding.topic,
        since_ms=since_ms,
    )


def _order(problem: Problem) -> tuple[int, str, str]:
    return _GRAVITY.index(problem.severity), problem.kind.value, problem.subject


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DAY_MS = 86_400_000
_DURATIONS = (
    (1_000, "s", 120_000),
    (60_000, "min", 7_200_000),
    (3_600_000, "h", 2 * _DAY_MS),
)


def human_bytes(size_bytes: int) -> str:
    """`1.5 GiB`."""
    value = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def human_utc(time_ms: int) -> str:
    """`2026-01-31 12:00:00`, in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}"


def human_duration(duration_ms: int) -> str:
    """`90 s`, `15 min`, `3 h`, `12 days`: whole units, rounded down."""
    for size_ms, unit, most_ms in _DURATIONS:
        if duration_ms < most_ms:
            return f"{duration_ms // size_ms} {unit}"
    return f"{duration_ms // _DAY_MS} days"
