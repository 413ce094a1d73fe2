"""The rules that decide what is a problem, by what should have happened and did not (H38).

Each rule takes values and returns findings; `rlm/plans/problems.py` explains how to add one. A rule
waits as long as what it watches may reasonably take, so that a restart or a change of leadership
raises no alarm. Times are monotonic ms. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kip405.acls import Acl, MissingAcls, grants, of_principal
from kip405.errors import Corrupt, Internal, RemoteStorageError
from kip405.ids import TopicPartition
from rlm.plans import expiry
from rlm.plans.problems import Finding, ProblemKind, human_bytes, human_duration
from rlm.plans.trim import NoTrim
from rlm.plans.verification import Issue, IssueKind

_STOPPED_BY_OPERATOR = (NoTrim.TRIM_OFF, NoTrim.FREEZE_RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each thing may take before it is a problem, in ms.

    `copy_ms`: without a copy, or a measurement, while no job runs (problem.copy.intervals).
    `copy_deadline_ms`: the same while a job runs or waits (copy.deadline.ms). `held_ms`: while
    copying waits for an open transaction or a flush. `trim_ms`: problem.trim.blocked.ms.
    `start_ms`: until ledger, settings and stores are known. `peers_ms`: until peers are known, so
    that one without a live service is an alarm within a minute. `leadership_ms`: between answers
    of the broker. `certificate_ms`: problem.certificate.days.
    """

    copy_ms: int
    copy_deadline_ms: int
    trim_ms: int
    leadership_ms: int
    certificate_ms: int
    held_ms: int = 1_200_000
    start_ms: int = 60_000
    peers_ms: int = 50_000


def partition_finding(partition: TopicPartition, kind: ProblemKind, text: str) -> Finding:
    """A finding about one partition; its subject is the partition's name."""
    return Finding(kind=kind, subject=str(partition), topic=partition.topic, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last job of a partition failed, and every job since `since_ms`."""

    error: Exception
    since_ms: int

    @property
    def message(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"

    @property
    def is_final(self) -> bool:
        """Whether waiting cannot repair it: damaged bytes, or a bug."""
        known = isinstance(self.error, RemoteStorageError)
        return not known or isinstance(self.error, Corrupt | Internal)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimObservation:
    """One partition's trim. `excess_bytes`: of closed segments that local retention would drop.

    `still_since_ms`: since when the broker's log start has not moved, with some excess, which was
    `excess_then_bytes` then; None without any. `reason` None = a trim was planned.
    """

    partition: TopicPartition
    reason: NoTrim | None
    detail: str
    failure: Failure | None
    alarm: str | None
    foreign_log_start: int | None
    still_since_ms: int | None = None
    excess_bytes: int = 0
    excess_then_bytes: int = 0


def trim_findings(observed: TrimObservation, limits: Limits, now_ms: int) -> Iterator[Finding]:
    """Problems with trimming a partition."""
    if observed.alarm:
        yield partition_finding(observed.partition, ProblemKind.TRIM_REFUSED, observed.alarm)
    if observed.foreign_log_start is not None:
        yield partition_finding(
            observed.partition,
            ProblemKind.FOREIGN_LOG_START,
            f"the broker's log start was moved to {observed.foreign_log_start} by somebody else; "
            "`rlm topics adopt-log-start` applies it",
        )
    is_growing = observed.excess_bytes > observed.excess_then_bytes
    waits = observed.reason is NoTrim.DELETION_LAG  # as the topic's settings say
    if observed.still_since_ms is None or not is_growing or waits:
        return
    still_ms = now_ms - observed.still_since_ms
    if still_ms > limits.trim_ms:
        is_meant = observed.reason in _STOPPED_BY_OPERATOR
        kind = ProblemKind.TRIM_STOPPED if is_meant else ProblemKind.TRIM_BLOCKED
        yield partition_finding(
            observed.partition,
            kind,
            f"nothing was trimmed for {human_duration(still_ms)}, while "
            f"{human_bytes(observed.excess_bytes)} beyond local retention lie on the disk, "
            f"{human_bytes(observed.excess_then_bytes)} when it began: "
            f"{_why_no_trim(observed)}",
        )


def _why_no_trim(observed: TrimObservation) -> str:
    if observed.failure is not None:
        return observed.failure.message
    if observed.reason is None:
        return "a trim is planned and not carried out"
    return " ".join((observed.reason.value, observed.detail)).strip()


def expiry_findings(partition: TopicPartition, held: expiry.Held | None) -> Iterator[Finding]:
    """Total retention that should act and must not, as no clock can be believed (H16). `held`:
    why its last run stopped, None = there was none.
    """
    if held is not None and held.reason is expiry.NoExpiry.CLOCK:
        yield partition_finding(
            partition,
            ProblemKind.EXPIRY_STOPPED,
            f"nothing expires: {held.words}; set the clocks right",
        )


def acl_findings(errors: Iterable[Exception | None], principal: str | None) -> Iterator[Finding]:
    """Missing ACLs, each once, with the command that grants them; None = only brokers know who."""
    found = {acl for error in errors if isinstance(error, MissingAcls) for acl in error.acls}
    for acl in sorted(of_principal(found, principal)):
        yield acl_finding(acl)


def acl_finding(acl: Acl) -> Finding:
    """One ACL that the service needs and lacks."""
    return Finding(
        kind=ProblemKind.ACL_MISSING,
        subject=f"{acl.operation} of {acl.resource_type}:{acl.resource_name}",
        topic=acl.resource_name if acl.resource_type == "Topic" else "",
        text=f"missing ACL: {acl}; kafka-acls.sh {grants([acl])[0]}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataHealth:
    """What ledger or settings (`name`) report about themselves; `is_ready` = read to their end."""

    name: str
    is_ready: bool
    problem: str | None


def metadata_findings(
    sides: Iterable[MetadataHealth], limits: Limits, uptime_ms: int, *, loss: str | None = None
) -> Iterator[Finding]:
    """Whether ledger and settings are reliable (H6). `loss`: what was lost of them (H42)."""
    for side in sides:
        if side.problem is None:
            continue
        kind = ProblemKind.METADATA
        if loss is not None and loss in side.problem:
            kind = ProblemKind.METADATA_LOST
        elif not side.is_ready and uptime_ms <= limits.start_ms:
            kind = ProblemKind.STARTING
        yield Finding(kind=kind, subject=side.name, text=side.problem)


def broker_findings(
    *, asked_at_ms: int | None, error: Exception | None, limits: Limits, now_ms: int, uptime_ms: int
) -> Iterator[Finding]:
    """Whether the broker answers what it leads; `asked_at_ms`: its last answer, None = never."""
    if asked_at_ms is None:
        is_late = uptime_ms > limits.start_ms
        silent_ms = uptime_ms
    else:
        silent_ms = now_ms - asked_at_ms
        is_late = silent_ms > limits.leadership_ms
    if is_late:
        why = f": {error}" if error else ""
        yield Finding(
            kind=ProblemKind.BROKER_UNKNOWN,
            subject="broker",
            text=f"it has not said for {human_duration(silent_ms)} what it leads; nothing is "
            f"copied or trimmed of what it leads since{why}",
        )


def heartbeat_findings(
    *, error: Exception | None, failing_ms: int, most_ms: int
) -> Iterator[Finding]:
    """Whether peers know that this service is live; `most_ms`: when they consider it dead."""
    if error is not None and failing_ms > most_ms:
        yield Finding(
            kind=ProblemKind.HEARTBEAT,
            subject="service",
            text=f"no heartbeat could be published for {human_duration(failing_ms)}: {error}",
        )


def skew_finding(subject: str, skew_ms: int) -> Finding:
    """A service's clock is too far ahead of the brokers' (H16), below 0 = behind."""
    where = "ahead of" if skew_ms > 0 else "behind"
    return Finding(
        kind=ProblemKind.CLOCK_SKEW,
        subject=subject,
        text=f"the clock of this service is {human_duration(abs(skew_ms))} {where} the brokers': "
        "set it right",
    )


def unknown_trim_finding(partition: TopicPartition, bound: int) -> Finding:
    """A DeleteRecords was given up and may still be executed (H41)."""
    return partition_finding(
        partition,
        ProblemKind.TRIM_UNKNOWN,
        f"a trim to {bound} was not answered in time; this partition is not trimmed before it is "
        "known whether it was carried out",
    )


def hung_threads_finding(pool: str, count: int, longest_ms: int) -> Finding:
    """Threads of one pool whose work does not return (G6)."""
    return Finding(
        kind=ProblemKind.HUNG_THREADS,
        subject=f"threads {pool}",
        text=f"{count} threads have not come back from a disk or a library, the first of them for "
        f"{human_duration(longest_ms)}: look at the file systems of log.dirs, state.dir and stores",
    )


def peer_findings(
    replicas: Mapping[int, Collection[str]], live: Collection[int], limits: Limits, followed_ms: int
) -> Iterator[Finding]:
    """Brokers with replicas of enabled topics, by node id, that have no live service (H18); one
    that has none needs it all the same. `followed_ms`: for how long heartbeats were received live.
    """
    if followed_ms <= limits.peers_ms:
        return
    for node_id in sorted(replicas.keys() - set(live)):
        text = _absence(sorted(replicas[node_id])) + "; start `rlm serve` beside it"
        yield Finding(kind=ProblemKind.PEER_ABSENT, subject=f"node {node_id}", text=text)


def _absence(topics: Sequence[str]) -> str:
    if not topics:  # proxy.attach: rewrite
        why = "its clients learn brokers' own addresses there, so nothing is trimmed"
        return f"this broker has no live service: {why}, and after a trim proxies do not name it"
    more = f" and {len(topics) - 3} others" if len(topics) > 3 else ""
    what = "what it shares is not trimmed, what it leads is not copied"
    return f"this broker has replicas of {', '.join(topics[:3])}{more} and no live service: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreObservation:
    """One store. `was_well`: since the service began, even if only briefly. `write_error`: why it
    accepts no segments; set until it accepts one.
    """

    name: str
    problem: str
    was_well: bool
    setup_alarms: tuple[str, ...] = ()
    write_error: str | None = None


def store_findings(
    stores: Iterable[StoreObservation], limits: Limits, uptime_ms: int
) -> Iterator[Finding]:
    """Stores that are away, accept nothing, or have a set-up that endangers data (H11)."""
    for store in stores:
        subject = f"store {store.name}"
        if store.problem:
            is_starting = not store.was_well and uptime_ms <= limits.start_ms
            kind = ProblemKind.STARTING if is_starting else ProblemKind.STORE_UNAVAILABLE
            yield Finding(kind=kind, subject=subject, text=store.problem)
        if store.write_error is not None:
            yield Finding(
                kind=ProblemKind.STORE_REFUSES_WRITES,
                subject=subject,
                text=f"it takes no segments: {store.write_error}",
            )
        for text in store.setup_alarms:
            yield Finding(kind=ProblemKind.STORE_SETUP, subject=subject, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFile:
    """A file of certificates and its expiry (wall ms), or why that is not known, or not in use."""

    path: str
    use: str
    ends_at_ms: int | None
    error: str | None = None
    is_in_use: bool = True


def certificate_findings(
    files: Iterable[CertificateFile], limits: Limits, now_wall_ms: int
) -> Iterator[Finding]:
    """Certificates that have expired, expire soon, cannot be read, or are not in use."""
    for file in files:
        if not file.is_in_use:
            text = f"{file.use}: former files stay in use: {file.error}"
            yield Finding(kind=ProblemKind.CERTIFICATE_UNUSABLE, subject=file.path, text=text)
        elif file.ends_at_ms is None:
            why = file.error or "it holds no certificate"
            text = f"{file.use}: when it ends is not known: {why}"
            yield Finding(kind=ProblemKind.CERTIFICATE_ENDED, subject=file.path, text=text)
        elif (left_ms := file.ends_at_ms - now_wall_ms) <= 0:
            text = f"{file.use}: it ended {human_duration(-left_ms)} ago; renew the file"
            yield Finding(kind=ProblemKind.CERTIFICATE_ENDED, subject=file.path, text=text)
        elif left_ms <= limits.certificate_ms:
            text = f"{file.use}: it ends in {human_duration(left_ms)}; renew the file"
            yield Finding(kind=ProblemKind.CERTIFICATE_ENDS_SOON, subject=file.path, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyObservation:
    """One partition's last verification. `issues`: its findings, without segments that are known
    as lost. `whole_ms`: when all of it was last checked, or when we began to lead it.
    """

    partition: TopicPartition
    issues: tuple[Issue, ...]
    unchecked: tuple[str, ...]
    whole_ms: int


_VERIFY_KINDS = {
    IssueKind.ORDER: ProblemKind.OFFSETS_DISORDERED,
    IssueKind.GAP: ProblemKind.OFFSETS_MISSING,
    IssueKind.OBJECTS: ProblemKind.SEGMENT_LOST,
    IssueKind.DAMAGED: ProblemKind.SEGMENT_LOST,
    IssueKind.UNLISTED: ProblemKind.SEGMENT_UNLISTED,
}
"""A frozen partition is a problem of its own, and manifests are compared on request only."""
_MOST_ISSUES_NAMED = 3


def verify_findings(
    observed: VerifyObservation, interval_ms: int, now_ms: int
) -> Iterator[Finding]:
    """What the verification at intervals (verify.interval.ms) found, or could not find out."""
    for kind in dict.fromkeys(_VERIFY_KINDS.values()):
        texts = [
            f"{_offsets_words(issue)}{issue.text}; {issue.action}"
            for issue in observed.issues
            if _VERIFY_KINDS.get(issue.kind) is kind
        ]
        if texts:
            more = len(texts) - _MOST_ISSUES_NAMED
            tail = f"; and {more} more: `rlm verify` lists them" if more > 0 else ""
            text = "; ".join(texts[:_MOST_ISSUES_NAMED]) + tail
            yield partition_finding(observed.partition, kind, text)
    unknown_ms = now_ms - observed.whole_ms
    if unknown_ms > 2 * max(interval_ms, _VERIFY_LEAST_MS):
        why = "; ".join(observed.unchecked[:_MOST_ISSUES_NAMED]) or "its turn has not come"
        yield partition_finding(
            observed.partition,
            ProblemKind.NOT_VERIFIED,
            f"its remote data was not verified for {human_duration(unknown_ms)}: {why}",
        )


_VERIFY_LEAST_MS = 3_600_000


def _offsets_words(issue: Issue) -> str:
    if issue.start_offset < 0:
        return ""
    return f"offsets {issue.start_offset} to {issue.next_offset}: "
