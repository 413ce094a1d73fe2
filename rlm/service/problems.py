"""Collects the present problems of a service, and logs those that appeared and those that ended.

A source is a function without arguments that returns current findings, from the rules of
`rlm/plans/problem_rules.py` and what the components know. It never waits and never raises: values
that need IO are read by a background component, and a source uses the latest ones. Everything that
shows problems reads them from ProblemWatch. Must not know where problems are shown.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import structlog

from kip405.ids import Uuid
from rlm.broker.leadership import Leadership, Snapshot
from rlm.clock import Clock
from rlm.config import CommonConfig, ServiceConfig
from rlm.plans.problem_rules import (
    CertificateFile,
    Limits,
    MetadataHealth,
    StoreObservation,
    acl_findings,
    broker_findings,
    certificate_findings,
    heartbeat_findings,
    hung_threads_finding,
    metadata_findings,
    peer_findings,
    skew_finding,
    store_findings,
)
from rlm.plans.problems import Finding, Problem, ProblemKind, ProblemRegister, Severity
from rlm.plans.services import DEAD_AFTER_BEATS, heartbeats, live_nodes
from rlm.remote_log.ports import Settings
from rlm.service.heartbeat import HeartbeatSender
from rlm.service.partition_problems import PartitionProblems
from rlm.stores.reports import StoreStatus
from rlm.stores.stores import NO_STORE, Stores
from rlm.tasks.copy_attempt import StoreWrites
from rlm.tasks.pool import TaskPool
from rlm.topics.keeper import TakeoverAlarm
from rlmm.settings_records import TopicRecord
from rlmm.settings_view import ClockSkew
from rsm_plugins.threads import HungWork

log = structlog.get_logger()
_LEVELS = {
    Severity.ALARM: logging.ERROR,
    Severity.WARNING: logging.WARNING,
    Severity.NOTE: logging.INFO,
}
FindingSource = Callable[[], Iterable[Finding]]
"""Current findings; never waits, never raises."""
_INTERVAL_MS = 5_000
_MOST_LINES_A_KIND = 20
"""Limit of lines of one kind at one time: a broker that is down must not log a line for each
partition.
"""


class ProblemWatch:
    """`current()` asks the sources at each call, so that its answer is never outdated."""

    def __init__(self, sources: Iterable[FindingSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._register = ProblemRegister()

    async def run(self) -> None:
        """Run until cancelled, so that problems are logged even when nobody asks for them."""
        while True:
            self.current()
            await self._clock.sleep_ms(_INTERVAL_MS)

    def current(self) -> tuple[Problem, ...]:
        """All current problems, alarms first."""
        findings = [finding for source in self._sources for finding in source()]
        changes = self._register.update(findings, self._clock.now_ms())
        _log_each(changes.appeared, _log_appeared)
        _log_each(changes.ended, _log_ended)
        return self._register.current


def _log_each(problems: Iterable[Problem], log_one: Callable[[Problem, int], None]) -> None:
    by_kind: dict[ProblemKind, list[Problem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind, []).append(problem)
    for alike in by_kind.values():
        shown = alike[:_MOST_LINES_A_KIND]
        for number, problem in enumerate(shown, start=1):
            is_last = number == len(shown)
            log_one(problem, len(alike) - len(shown) if is_last else 0)


def _log_appeared(problem: Problem, more: int) -> None:
    log.log(_LEVELS[problem.severity], "problem", **_shown(problem, more), problem=problem.text)


def _log_ended(problem: Problem, more: int) -> None:
    log.info("problem_ended", **_shown(problem, more), since_ms=problem.since_ms)


def _shown(problem: Problem, more: int) -> dict[str, object]:
    """`more_of_this_kind`: how many other problems of the kind get no line of their own."""
    shown: dict[str, object] = {"kind": problem.kind.value, "subject": problem.subject}
    return {**shown, "more_of_this_kind": more} if more else shown


_DAY_MS = 86_400_000
_COPY_LEAST_MS = 15_000
"""A snapshot alone may wait 10 s for each of its barriers."""
_LEADERSHIP_POLLS = 10
_LEADERSHIP_LEAST_MS = 10_000
_NEVER_MS = 1 << 53
"""The limit for work that the role does not do."""


def service_limits(config: ServiceConfig) -> Limits:
    """How long each thing may take in a service beside a broker."""
    return Limits(
        copy_ms=max(
            _COPY_LEAST_MS,
            config.problem_copy_intervals * config.remote_log_manager_task_interval_ms,
        ),
        copy_deadline_ms=config.copy_deadline_ms,
        trim_ms=config.problem_trim_blocked_ms,
        leadership_ms=max(
            _LEADERSHIP_LEAST_MS, _LEADERSHIP_POLLS * config.leadership_poll_interval_ms
        ),
        certificate_ms=config.problem_certificate_days * _DAY_MS,
    )


def reader_limits(config: CommonConfig) -> Limits:
    """How long each thing may take in a reader, which copies and trims nothing."""
    return Limits(
        copy_ms=_NEVER_MS,
        copy_deadline_ms=_NEVER_MS,
        trim_ms=_NEVER_MS,
        leadership_ms=_NEVER_MS,
        certificate_ms=config.problem_certificate_days * _DAY_MS,
    )


class _Topic(Protocol):
    """A view of one of our topics: ledger or settings."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...


class _Log(Protocol):
    """Both topics as they were read."""

    @property
    def loss(self) -> str | None: ...


class _Stores(Protocol):
    @property
    def stores(self) -> Stores: ...

    def statuses(self) -> Sequence[StoreStatus]: ...


class _Certificates(Protocol):
    @property
    def files(self) -> Sequence[CertificateFile]: ...


class _Keeper(Protocol):
    @property
    def alarms(self) -> Mapping[Uuid, TakeoverAlarm]: ...


class CommonSources:
    """The sources of every role: connections, metadata, stores, certificates."""

    def __init__(
        self,
        *,
        ledger: _Topic,
        settings: _Topic,
        log: _Log,
        stores: _Stores,
        certificates: _Certificates,
        hung_threads: Callable[[], Sequence[HungWork]],
        refusals: Callable[[], Mapping[str, str]],
        clock: Clock,
        limits: Limits,
        writes: StoreWrites | None = None,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._log = log
        self._stores = stores
        self._certificates = certificates
        self._hung_threads = hung_threads
        self._refusals = refusals
        self._clock = clock
        self._limits = limits
        self._writes = writes or StoreWrites()
        self._began_ms = clock.monotonic_ms()
        self._were_well: set[str] = set()

    def sources(self) -> tuple[FindingSource, ...]:
        return (
            self._of_refusals,
            self._of_metadata,
            self._of_stores,
            self._of_certificates,
            self._of_threads,
        )

    @property
    def uptime_ms(self) -> int:
        """Time since the service was built."""
        return self._clock.monotonic_ms() - self._began_ms

    def _of_refusals(self) -> Iterator[Finding]:
        """Brokers that the Kafka clients cannot connect to, and why, by address."""
        for address, why in sorted(self._refusals().items()):
            yield Finding(kind=ProblemKind.KAFKA_REFUSED, subject=address, text=why)

    def _of_metadata(self) -> Iterator[Finding]:
        ledger, settings = self._ledger, self._settings
        rows = [
            MetadataHealth(name="ledger", is_ready=ledger.is_ready, problem=ledger.problem),
            MetadataHealth(name="settings", is_ready=settings.is_ready, problem=settings.problem),
        ]
        return metadata_findings(rows, self._limits, self.uptime_ms, loss=self._log.loss)

    def _of_stores(self) -> Iterator[Finding]:
        if not self._stores.stores.connections:
            yield Finding(kind=ProblemKind.NO_STORE, subject="stores", text=NO_STORE)
        statuses = self._stores.statuses()
        self._were_well |= {row.name for row in statuses if not row.problem}
        knows_all = all(
            connection.store_id is not None for connection in self._stores.stores.connections
        )
        rows = [
            StoreObservation(
                name=row.name or str(row.store_id),
                problem=row.problem,
                was_well=row.name in self._were_well if row.name else knows_all,
                setup_alarms=row.alarms,
                write_error=self._writes.error(row.store_id),
            )
            for row in statuses
        ]
        yield from store_findings(rows, self._limits, self.uptime_ms)
        for text in self._stores.stores.twins():
            yield Finding(kind=ProblemKind.STORE_SETUP, subject="stores", text=text)

    def _of_certificates(self) -> Iterator[Finding]:
        return certificate_findings(self._certificates.files, self._limits, self._clock.now_ms())

    def _of_threads(self) -> Iterator[Finding]:
        for found in self._hung_threads():
            yield hung_threads_finding(found.pool, found.count, found.longest_ms)


class ServiceSources:
    """The additional sources of a service beside a broker."""

    def __init__(
        self,
        *,
        node_id: int,
        common: CommonSources,
        settings: Settings,
        leadership: Leadership,
        heartbeat: HeartbeatSender,
        heartbeat_interval_ms: int,
        needs_all_brokers: bool,
        partitions: PartitionProblems,
        pools: Sequence[TaskPool],
        keeper: _Keeper,
        clock: Clock,
        limits: Limits,
        principal: str | None,
        others: Sequence[FindingSource],
    ) -> None:
        """`others`: methods of components that report their own findings. `needs_all_brokers`: also
        brokers without replicas need a service. `principal`: of the service, None = not known.
        """
        self._principal = principal
        self._needs_all_brokers = needs_all_brokers
        self._others = tuple(others)
        self._node_id = node_id
        self._common = common
        self._settings = settings
        self._leadership = leadership
        self._heartbeat = heartbeat
        self._dead_after_ms = DEAD_AFTER_BEATS * heartbeat_interval_ms
        self._clock = clock
        self._partitions = partitions
        self._pools = tuple(pools)
        self._keeper = keeper
        self._limits = limits
        self._followed_since_ms = clock.monotonic_ms() if settings.is_ready else None

    def sources(self) -> tuple[FindingSource, ...]:
        """All of them."""
        return (
            *self._common.sources(),
            self._of_broker,
            self._of_service,
            self._of_peers,
            self._of_acls,
            self._of_topics,
            self._partitions.findings,
            *self._others,
        )

    def _of_broker(self) -> Iterator[Finding]:
        taken_at_ms = self._leadership.snapshot.taken_at_ms
        return broker_findings(
            asked_at_ms=None if taken_at_ms < 0 else taken_at_ms,
            error=self._leadership.error,
            limits=self._limits,
            now_ms=self._clock.monotonic_ms(),
            uptime_ms=self._common.uptime_ms,
        )

    def _of_service(self) -> Iterator[Finding]:
        heartbeat = self._heartbeat
        if heartbeat.rival is not None:
            yield Finding(
                kind=ProblemKind.RIVAL_SERVICE,
                subject="service",
                text=f"a second service of this node is alive (writer {heartbeat.rival}): stop one",
            )
        yield from heartbeat_findings(
            error=heartbeat.error,
            failing_ms=self._clock.monotonic_ms() - heartbeat.failing_since_ms,
            most_ms=self._dead_after_ms,
        )

    def _followed_ms(self) -> int:
        """How long heartbeats have been received live: replayed ones say nothing about now."""
        now_ms = self._clock.monotonic_ms()
        if not self._settings.is_ready:
            self._followed_since_ms = None
        elif self._followed_since_ms is None:
            self._followed_since_ms = now_ms
        return 0 if self._followed_since_ms is None else now_ms - self._followed_since_ms

    def _of_peers(self) -> Iterator[Finding]:
        beats = heartbeats(self._settings.view, self._clock.monotonic_ms())
        live = live_nodes(beats, max_age_ms=self._dead_after_ms)
        for skew in self._settings.view.clock_skews():
            age_ms = self._settings.view.heard_age_ms(skew.who, self._clock.monotonic_ms())
            if age_ms is not None and age_ms <= self._dead_after_ms:
                yield skew_finding(_who(skew), skew.skew_ms)
        snapshot = self._leadership.snapshot
        enabled = self._enabled()
        replicas = _replicas(snapshot, enabled)
        if self._needs_all_brokers and enabled:
            for node in snapshot.nodes:
                replicas.setdefault(node.node_id, set())
        replicas.pop(self._node_id, None)
        yield from peer_findings(replicas, live, self._limits, self._followed_ms())

    def _of_acls(self) -> Iterator[Finding]:
        failures = (one.error for pool in self._pools for one in pool.last_errors.values())
        others = (self._leadership.error, self._heartbeat.error)
        return acl_findings((*others, *failures), self._principal)

    def _of_topics(self) -> Iterator[Finding]:
        for alarm in self._keeper.alarms.values():
            yield Finding(
                kind=ProblemKind.RETENTION_REVERTED,
                subject=f"topic {alarm.topic}",
                topic=alarm.topic,
                text=alarm.text,
            )
        snapshot = self._leadership.snapshot
        if snapshot.taken_at_ms < 0 or self._common.uptime_ms <= self._limits.start_ms:
            return
        for record in self._enabled().values():
            if snapshot.lacks(record.name):
                yield Finding(
                    kind=ProblemKind.TOPIC_NOT_SEEN,
                    subject=f"topic {record.name}",
                    topic=record.name,
                    text=f"the broker knows no topic of this name (enabled under id "
                    f"{record.topic_id}); if it was deleted, `rlm topics disable {record.name}`",
                )

    def _enabled(self) -> dict[Uuid, TopicRecord]:
        topics = self._settings.view.topics()
        return {record.topic_id: record for record in topics if record.state == "enabled"}


def _who(skew: ClockSkew) -> str:
    return skew.who if skew.node_id < 0 else f"node {skew.node_id}"


def _replicas(snapshot: Snapshot, enabled: Container[Uuid]) -> dict[int, set[str]]:
    """The enabled topics of which each node has a replica, by node id."""
    found: dict[int, set[str]] = {}
    for topic in snapshot.topics.values():
        if topic.topic_id in enabled:
            for node_id in set().union(*(row.replicas for row in topic.partitions.values())):
                found.setdefault(node_id, set()).add(topic.name)
    return found
