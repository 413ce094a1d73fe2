"""A fault for each cause of "nothing is copied" (or trimmed) is seen everywhere (H38).

By status, its exit code, /healthz, metrics and log; and it ends everywhere when it is mended.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import structlog

from kip405.acls import missing_acls, topic_acl
from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.plans.problems import ProblemKind
from rlm.service.certificates import CertificatePath
from tests.builders.certificates import Authority
from tests.builders.ledger import PARTITION
from tests.builders.store import STORE_ID
from tests.rlm.watched import COPY_MS, LIMITS, Watched, with_replica

LONG_MS = COPY_MS + 30_000
SUBJECT = f"{PARTITION.topic}-{PARTITION.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`plant` breaks something, then `after_ms` pass; `mend` makes it well again."""

    kind: ProblemKind
    subject: str
    plant: Callable[[Watched], None]
    mend: Callable[[Watched], None]
    after_ms: int = LONG_MS
    lag_is_known: bool = True
    words: str = ""


def _epochs_unreadable(service: Watched) -> None:
    path = service.rig.disk.path / "leader-epoch-checkpoint"
    path.rename(path.with_name("kept"))
    path.mkdir()


def _epochs_readable(service: Watched) -> None:
    path = service.rig.disk.path / "leader-epoch-checkpoint"
    path.rmdir()
    path.with_name("kept").rename(path)


def _directory_gone(service: Watched) -> None:
    path = service.rig.disk.path
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(b"")


def _directory_back(service: Watched) -> None:
    path = service.rig.disk.path
    path.unlink()
    path.with_name("elsewhere").rename(path)


def _refuse_writes(service: Watched) -> None:
    def refuse(operation: str) -> None:
        if operation == "copy":
            raise Unavailable("No space left on device: free space or enlarge the volume")

    service.rig.store.before = refuse


def _take_writes(service: Watched) -> None:
    service.rig.store.before = lambda _: None


def _refuse_configs(service: Watched) -> None:
    def refuse(question: str) -> None:
        if question == "topic config":
            raise missing_acls("describe configs", [topic_acl("DescribeConfigs", PARTITION.topic)])

    service.rig.broker.after_answer = refuse


def _allow_configs(service: Watched) -> None:
    service.rig.broker.after_answer = lambda _: None


def _asked_raises(error: RemoteStorageError | None) -> Callable[[Watched], None]:
    def change(service: Watched) -> None:
        service.asked.error = error

    return change


def _policy(value: str) -> Callable[[Watched], None]:
    def change(service: Watched) -> None:
        service.rig.broker.config["cleanup.policy"] = value

    return change


def _stable(offset: int) -> Callable[[Watched], None]:
    def change(service: Watched) -> None:
        service.rig.broker.last_stable_offset = offset

    return change


def _damage(service: Watched) -> None:
    path = service.rig.disk.file(0, ".log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _repair(service: Watched) -> None:
    _damage(service)


def _ledger_problem(text: str | None) -> Callable[[Watched], None]:
    def change(service: Watched) -> None:
        service.rig.ledger.problem = service.rig.ledger.damage = text

    return change


def _store_problem(text: str | None) -> Callable[[Watched], None]:
    def change(service: Watched) -> None:
        service.link.problem = text

    return change


def _replica_alone(service: Watched) -> None:
    with_replica(service.rig, 2)


def _replica_gone(service: Watched) -> None:
    with_replica(service.rig, 1)


FAULTS = {
    "a file of the partition cannot be read": Fault(
        kind=ProblemKind.LAG_UNKNOWN,
        subject=SUBJECT,
        plant=_epochs_unreadable,
        mend=_epochs_readable,
        lag_is_known=False,
        words="cannot be read",
    ),
    "the partition's directory is none": Fault(
        kind=ProblemKind.LAG_UNKNOWN,
        subject=SUBJECT,
        plant=_directory_gone,
        mend=_directory_back,
        lag_is_known=False,
        words="is in none of log.dirs",
    ),
    "the store takes nothing": Fault(
        kind=ProblemKind.STORE_REFUSES_WRITES,
        subject="store hot",
        plant=_refuse_writes,
        mend=_take_writes,
        after_ms=60_000,
        words="No space left",
    ),
    "nothing is copied": Fault(
        kind=ProblemKind.NOTHING_COPIED,
        subject=SUBJECT,
        plant=_refuse_writes,
        mend=_take_writes,
        words="No space left",
    ),
    "the store is away": Fault(
        kind=ProblemKind.STORE_UNAVAILABLE,
        subject="store hot",
        plant=_store_problem("the plugin does not answer"),
        mend=_store_problem(None),
        after_ms=0,
        words="does not answer",
    ),
    "an ACL is missing": Fault(
        kind=ProblemKind.ACL_MISSING,
        subject=f"DescribeConfigs of Topic:{PARTITION.topic}",
        plant=_refuse_configs,
        mend=_allow_configs,
        after_ms=30_000,
        lag_is_known=False,
        words="kafka-acls.sh --add",
    ),
    "no snapshot succeeds for want of an ACL": Fault(
        kind=ProblemKind.LAG_UNKNOWN,
        subject=SUBJECT,
        plant=_refuse_configs,
        mend=_allow_configs,
        lag_is_known=False,
        words="operation DescribeConfigs",
    ),
    "the broker does not answer": Fault(
        kind=ProblemKind.BROKER_UNKNOWN,
        subject="broker",
        plant=_asked_raises(Unavailable("connection refused")),
        mend=_asked_raises(None),
        after_ms=30_000,
        words="connection refused",
    ),
    "the topic is compacted now": Fault(
        kind=ProblemKind.COPY_REFUSED,
        subject=SUBJECT,
        plant=_policy("compact"),
        mend=_policy("delete"),
        after_ms=30_000,
        words="cleanup.policy=compact",
    ),
    "a transaction hangs": Fault(
        kind=ProblemKind.NOTHING_COPIED,
        subject=SUBJECT,
        plant=_stable(50),
        mend=_stable(300),
        after_ms=LIMITS.held_ms + 60_000,
        words="waiting for the last stable offset",
    ),
    "a segment is damaged": Fault(
        kind=ProblemKind.CANNOT_COPY,
        subject=SUBJECT,
        plant=_damage,
        mend=_repair,
        after_ms=30_000,
        words="DamagedSegment",
    ),
    "the ledger cannot be relied on": Fault(
        kind=ProblemKind.METADATA,
        subject="ledger",
        plant=_ledger_problem("the topic was recreated"),
        mend=_ledger_problem(None),
        after_ms=0,
        lag_is_known=False,  # it has no start yet: the first one waits for the ledger
        words="recreated",
    ),
    "a broker with a replica has no service": Fault(
        kind=ProblemKind.PEER_ABSENT,
        subject="node 2",
        plant=_replica_alone,
        mend=_replica_gone,
        after_ms=30_000,
        words="start `rlm serve` beside it",
    ),
}


@pytest.fixture
async def service(tmp_path: Path) -> Watched:
    """Nothing copied yet, and past the grace of a start."""
    watched = Watched(tmp_path)
    watched.rig.clock.advance(LIMITS.start_ms + 1)
    return watched


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_h38_every_interface_shows_it_until_it_is_mended(
    service: Watched, fault: Fault
) -> None:
    service.rig.write_log(0, 100, 250, end=300)
    async with service.logging() as logged:
        await service.leadership.refresh()
        fault.plant(service)
        await service.run_tasks()
        await service.pass_time(fault.after_ms)
        shown = await service.shown()
    [found] = [
        one for one in shown.problems if (one.kind, one.subject) == (fault.kind, fault.subject)
    ]
    assert fault.words in found.text
    word = fault.kind.value
    assert (shown.exit_code, shown.stdout.count(f"alarm: {fault.subject}: ")) == (
        1,
        len([one for one in shown.problems if one.subject == fault.subject]),
    )
    assert (shown.health["health"], shown.health["ready"]) == ("alarm", True)
    assert (shown.healthz_status, shown.readyz_status) == (200, 200)
    assert (word, fault.subject) in {
        (row["kind"], row["subject"]) for row in shown.health["problems"]
    }
    assert f'rlm_problems{{kind="{word}",severity="alarm"}} 1.0' in shown.metrics
    assert logged.count(("problem", word)) == 1
    assert (service.status.lag_bytes is not None) == fault.lag_is_known
    assert ("rlm_remote_copy_lag_bytes{" in shown.metrics) == fault.lag_is_known

    fault.mend(service)
    async with service.logging() as logged:
        await service.pass_time(60_000)
        shown = await service.shown()
    assert shown.problems == ()
    assert (shown.exit_code, shown.health["health"]) == (0, "well")
    assert ("problem_ended", word) in logged
    assert service.status.lag_bytes == 0


async def test_h38_a_service_that_works_shows_no_problem(service: Watched) -> None:
    service.rig.write_log(0, 100, 250, end=300)
    async with service.logging() as logged:
        for _ in range(3):
            await service.pass_time(30_000)
        shown = await service.shown()
    assert (shown.problems, logged) == ((), [])
    assert (shown.exit_code, shown.health["health"]) == (0, "well")
    assert 'rlm_remote_copy_lag_bytes{partition="0",topic="orders"} 0.0' in shown.metrics


async def test_h38_a_normal_start_shows_no_alarm(tmp_path: Path) -> None:
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    service.link.store_id, service.link.problem = None, "the store was not asked yet"
    with_replica(service.rig, 2)
    await service.run_tasks()
    shown = await service.shown()
    assert [one.kind for one in shown.problems] == [ProblemKind.STARTING]
    assert (shown.exit_code, shown.health["health"]) == (0, "well")
    service.link.store_id = STORE_ID  # known by the settings, and not looked at yet
    assert [one.kind for one in service.watch.current()] == [ProblemKind.STARTING]
    service.link.problem = None
    assert service.watch.current() == ()
    service.link.problem = "the plugin does not answer"
    assert [one.kind for one in service.watch.current()] == [ProblemKind.STORE_UNAVAILABLE]


async def test_h38_a_trim_that_stands_still_while_the_disk_grows(service: Watched) -> None:
    service.rig.write_log(0, 100, 250, end=300)
    with_replica(service.rig, 2)
    await service.pass_time(LIMITS.trim_ms)
    assert ProblemKind.TRIM_BLOCKED not in {one.kind for one in service.watch.current()}
    closed_bytes = sum(service.rig.disk.file(at, ".log").stat().st_size for at in (0, 100))
    service.rig.broker.log = service.rig.broker.log[:closed_bytes]
    service.rig.write_log(250, 300, 400, end=500)
    await service.pass_time(60_000)
    shown = await service.shown()
    [found] = [one for one in shown.problems if one.kind is ProblemKind.TRIM_BLOCKED]
    assert "no live service" in found.text
    assert service.status.alarms == (found.text,)
    await service.pass_time(60_000, heartbeats=(1, 2))
    assert service.watch.current() == ()


@pytest.mark.parametrize(
    ("is_expired", "kind", "exit_code"),
    [(True, ProblemKind.CERTIFICATE_ENDED, 1), (False, None, 0)],
)
async def test_h38_a_certificate_that_has_ended(
    tmp_path: Path, is_expired: bool, kind: ProblemKind | None, exit_code: int
) -> None:
    file = Authority(tmp_path).issue("api", is_expired=is_expired).cert_file
    service = Watched(tmp_path, [CertificatePath(path=file, use="of the API", is_shown=True)])
    service.rig.clock.now = 1_700_000_000_000
    service.rig.write_log(0, 100, end=150)
    await service.run_tasks()
    await service.certificates.check()
    shown = await service.shown()
    assert [one.kind for one in shown.problems if one.subject == str(file)] == (
        [kind] if kind else []
    )
    assert shown.exit_code == exit_code


async def test_h38_a_lasting_problem_is_one_line_of_the_log_and_not_one_a_run(
    service: Watched,
) -> None:
    service.rig.write_log(0, 100, 250, end=300)
    await service.run_tasks()
    service.rig.broker.log_start_offset = 270
    with structlog.testing.capture_logs() as lines:
        await service.pass_time(300_000)
    assert {one.kind for one in service.watch.current()} == {ProblemKind.FOREIGN_LOG_START}
    assert [(row["event"], row.get("kind")) for row in lines if row["log_level"] == "error"] == [
        ("problem", "foreign-log-start")
    ]


async def test_h38_a_topic_that_the_broker_was_not_asked_for_yet_is_not_called_unknown(
    service: Watched,
) -> None:
    """Enabled a moment ago, or while the broker does not answer: the advice would be to disable."""
    service.rig.write_log(0, 100, end=150)
    await service.run_tasks()
    record = service.rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    service.rig.settings.write(replace(record, name="later", topic_id=Uuid(b"\x0a" * 16)))
    assert service.watch.current() == ()
    service.leadership.want([PARTITION.topic, "later"])
    await service.leadership.refresh()
    [problem] = service.watch.current()
    assert (problem.kind, problem.subject) == (ProblemKind.TOPIC_NOT_SEEN, "topic later")


async def test_h38_peers_are_not_called_absent_before_they_could_be_heard(tmp_path: Path) -> None:
    """Settings that take minutes to be read: a heartbeat of before says nothing about now."""
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    with_replica(service.rig, 2)
    await service.leadership.refresh()
    service.rig.settings.is_ready = False
    service.rig.clock.advance(10 * LIMITS.start_ms)
    await service.leadership.refresh()
    assert ProblemKind.PEER_ABSENT not in {one.kind for one in service.watch.current()}
    service.rig.settings.is_ready = True
    assert ProblemKind.PEER_ABSENT not in {one.kind for one in service.watch.current()}
    await service.pass_time(LIMITS.start_ms + 1)
    [absent] = [one for one in service.watch.current() if one.kind is ProblemKind.PEER_ABSENT]
    assert absent.subject == "node 2"
