"""What should have happened and did not: when that is a problem, and what is said (H38)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kip405.acls import missing_acls, topic_acl
from kip405.errors import Corrupt, Fenced, Internal, Invalid, Unavailable
from kip405.ids import TopicPartition
from rlm.plans.copy import CopyLag, WhyNot
from rlm.plans.copy_problems import CopyMeasure, CopyObservation, copy_findings, known_lag
from rlm.plans.problem_rules import (
    CertificateFile,
    Failure,
    Limits,
    MetadataHealth,
    StoreObservation,
    TrimObservation,
    acl_findings,
    broker_findings,
    certificate_findings,
    heartbeat_findings,
    metadata_findings,
    peer_findings,
    skew_finding,
    store_findings,
    trim_findings,
    unknown_trim_finding,
)
from rlm.plans.problems import Finding, ProblemKind
from rlm.plans.trim import NoTrim

LIMITS = Limits(
    copy_ms=90_000,
    copy_deadline_ms=1_800_000,
    trim_ms=900_000,
    leadership_ms=10_000,
    certificate_ms=14 * 86_400_000,
    held_ms=1_200_000,
    start_ms=60_000,
)
PARTITION = TopicPartition(topic="orders", partition=3)
LAG = CopyLag(segments=2, size_bytes=3 << 20)
FULL = Failure(error=Unavailable("no space left on device"), since_ms=0)


def measure(at_ms: int = 0, **changes: Any) -> CopyMeasure:
    known = CopyMeasure(
        at_ms=at_ms, lag=LAG, behind_since_ms=0, is_due=True, reason=WhyNot.TO_BE_COPIED
    )
    return replace(known, **changes)


def copying(**changes: Any) -> CopyObservation:
    """Led since 0; measured at 0 with a lag that is due; nothing at work."""
    records = CopyObservation(
        partition=PARTITION,
        led_since_ms=0,
        measure=measure(),
        failure=None,
        is_running=False,
        is_waiting=False,
    )
    return replace(records, **changes)


def kinds(findings: Iterable[Finding]) -> list[ProblemKind]:
    return [one.kind for one in findings]


def test_what_was_never_measured_is_unknown_at_once_and_an_alarm_after_the_intervals() -> None:
    records = copying(measure=None, failure=Failure(error=Unavailable("EACCES"), since_ms=5))
    assert known_lag(records, LIMITS, 0) is None
    assert kinds(copy_findings(records, LIMITS, 90_000)) == []
    [found] = copy_findings(records, LIMITS, 90_001)
    assert (found.kind, found.subject, found.topic) == (
        ProblemKind.LAG_UNKNOWN,
        "orders-3",
        "orders",
    )
    assert "EACCES" in found.text


def test_a_measure_grows_old() -> None:
    records = copying(measure=measure(at_ms=10_000))
    assert known_lag(records, LIMITS, 100_000) == LAG
    assert known_lag(records, LIMITS, 100_001) is None
    assert kinds(copy_findings(records, LIMITS, 100_001)) == [ProblemKind.LAG_UNKNOWN]


def test_a_job_at_work_may_take_until_its_deadline() -> None:
    records = copying(is_running=True)
    assert known_lag(records, LIMITS, 1_800_000) == LAG
    assert kinds(copy_findings(records, LIMITS, 1_800_000)) == []
    assert kinds(copy_findings(records, LIMITS, 1_800_001)) == [ProblemKind.LAG_UNKNOWN]
    fresh = replace(records, measure=measure(at_ms=1_800_001))
    assert kinds(copy_findings(fresh, LIMITS, 1_800_001)) == [ProblemKind.NOTHING_COPIED]


def test_who_waits_while_others_are_copied_has_its_turn_to_come() -> None:
    now_ms = 7_200_000
    queued = copying(
        is_waiting=True, measure=measure(at_ms=now_ms), service_copied_at_ms=now_ms - 1_000
    )
    assert kinds(copy_findings(queued, LIMITS, now_ms)) == []
    nobody_is = replace(queued, service_copied_at_ms=now_ms - 1_800_001)
    assert kinds(copy_findings(nobody_is, LIMITS, now_ms)) == [ProblemKind.NOTHING_COPIED]


def test_a_store_that_takes_nothing_is_seen_after_the_intervals() -> None:
    records = copying(failure=FULL, is_running=True, measure=measure(at_ms=90_000))
    assert kinds(copy_findings(records, LIMITS, 90_000)) == []
    [found] = copy_findings(records, LIMITS, 90_001)
    assert found.kind is ProblemKind.NOTHING_COPIED
    assert "2 closed segments are not remote, 3.0 MiB" in found.text
    assert "no space left on device" in found.text


@pytest.mark.parametrize(
    "reason", [WhyNot.LAST_STABLE_OFFSET, WhyNot.RECOVERY_POINT, WhyNot.SNAPSHOT_MISSING]
)
def test_what_waits_for_the_broker_is_an_alarm_after_twenty_minutes(reason: WhyNot) -> None:
    now_ms = 1_200_001
    held = measure(at_ms=now_ms, is_due=False, reason=reason, detail="segment ends at 300")
    [found] = copy_findings(copying(measure=held), LIMITS, now_ms)
    assert found.kind is ProblemKind.NOTHING_COPIED
    assert f"{reason.value} segment ends at 300" in found.text
    assert kinds(copy_findings(copying(measure=held), LIMITS, now_ms - 1)) == []


def test_nothing_behind_is_nothing_wrong_however_long_it_lasts() -> None:
    now_ms = 10**9
    well = measure(
        at_ms=now_ms,
        lag=CopyLag(),
        behind_since_ms=None,
        is_due=False,
        reason=WhyNot.CAUGHT_UP,
    )
    assert kinds(copy_findings(copying(measure=well), LIMITS, now_ms)) == []


@pytest.mark.parametrize("error", [Corrupt("bad crc"), Internal("bug"), ValueError("bug")])
def test_what_no_wait_mends_is_reported_at_once(error: Exception) -> None:
    records = copying(failure=Failure(error=error, since_ms=0))
    [found] = copy_findings(records, LIMITS, 1)
    assert found.kind is ProblemKind.CANNOT_COPY
    assert "2 closed segments are not remote" in found.text


@pytest.mark.parametrize("error", [Unavailable("away"), Fenced("led elsewhere"), Invalid("x")])
def test_what_a_wait_may_mend_is_not(error: Exception) -> None:
    records = copying(failure=Failure(error=error, since_ms=0))
    assert kinds(copy_findings(records, LIMITS, 1)) == []


def test_a_topic_that_may_not_be_copied_any_more_is_reported_at_once() -> None:
    refused = measure(is_due=False, reason=WhyNot.CLEANUP_POLICY, detail="cleanup.policy=compact")
    [found] = copy_findings(copying(measure=refused), LIMITS, 1)
    assert found.kind is ProblemKind.COPY_REFUSED
    assert "cleanup.policy=compact" in found.text


def trimming(**changes: Any) -> TrimObservation:
    """The log start stands still since 0, and more lies on the disk than then."""
    records = TrimObservation(
        partition=PARTITION,
        reason=NoTrim.NO_LIVE_SERVICE,
        detail="beside broker 2",
        failure=None,
        alarm=None,
        foreign_log_start=None,
        still_since_ms=0,
        excess_bytes=2 << 20,
        excess_then_bytes=1 << 20,
    )
    return replace(records, **changes)


def test_a_trim_that_does_not_come_while_the_disk_grows() -> None:
    assert kinds(trim_findings(trimming(), LIMITS, 900_000)) == []
    [found] = trim_findings(trimming(), LIMITS, 900_001)
    assert found.kind is ProblemKind.TRIM_BLOCKED
    for words in ("15 min", "2.0 MiB", "1.0 MiB", "no live service beside broker 2"):
        assert words in found.text


def test_h38_a_trim_that_fails_says_why() -> None:
    failing = trimming(reason=None, failure=FULL)
    [found] = trim_findings(failing, LIMITS, 900_001)
    assert "no space left on device" in found.text


@pytest.mark.parametrize(
    "change", [{"excess_then_bytes": 2 << 20}, {"still_since_ms": None}, {"excess_bytes": 0}]
)
def test_a_disk_that_does_not_grow_is_no_problem(change: dict[str, Any]) -> None:
    assert kinds(trim_findings(trimming(**change), LIMITS, 10**9)) == []


@pytest.mark.parametrize("reason", [NoTrim.TRIM_OFF, NoTrim.FREEZE_RECORD])
def test_what_an_operator_stopped_is_a_warning(reason: NoTrim) -> None:
    found = trim_findings(trimming(reason=reason), LIMITS, 900_001)
    assert kinds(found) == [ProblemKind.TRIM_STOPPED]


def test_refused_trims_and_foreign_moves_are_alarms_at_once() -> None:
    records = trimming(still_since_ms=None, alarm="trim to 9 refused: gone", foreign_log_start=7)
    found = {one.kind: one.text for one in trim_findings(records, LIMITS, 0)}
    assert found[ProblemKind.TRIM_REFUSED] == "trim to 9 refused: gone"
    assert "moved to 7 by somebody else" in found[ProblemKind.FOREIGN_LOG_START]


def test_each_missing_right_is_reported_once_with_the_command_that_gives_it() -> None:
    read = topic_acl("Read", "orders")
    errors = [missing_acls("fetch", [read]), missing_acls("look", [read]), None, Invalid("x")]
    [found] = acl_findings(errors, "User:tiering")
    assert (found.kind, found.topic) == (ProblemKind.ACL_MISSING, "orders")
    assert found.subject == "Read of Topic:orders"
    assert "principal User:tiering, operation Read, resource Topic:orders" in found.text
    assert "kafka-acls.sh --add --allow-principal User:tiering --operation Read" in found.text
    [unknown] = acl_findings(errors, None)
    assert "missing ACL: the service's principal, operation Read" in unknown.text
    assert "kafka-acls.sh --add --allow-principal PRINCIPAL --operation Read" in unknown.text


def test_metadata_that_is_not_read_yet_is_a_note_at_first() -> None:
    reading = MetadataHealth(name="ledger", is_ready=False, problem="not read yet")
    assert kinds(metadata_findings([reading], LIMITS, 60_000)) == [ProblemKind.STARTING]
    assert kinds(metadata_findings([reading], LIMITS, 60_001)) == [ProblemKind.METADATA]
    broken = MetadataHealth(name="ledger", is_ready=True, problem="it was recreated")
    assert kinds(metadata_findings([broken], LIMITS, 1)) == [ProblemKind.METADATA]
    lost = replace(broken, problem="offsets 7 to 9 are gone; rebuild it")
    found = metadata_findings([lost], LIMITS, 1, loss="offsets 7 to 9 are gone")
    assert kinds(found) == [ProblemKind.METADATA_LOST]
    well = MetadataHealth(name="ledger", is_ready=True, problem=None)
    assert kinds(metadata_findings([well], LIMITS, 10**9)) == []


def broker_at(now_ms: int, asked_at_ms: int | None) -> list[ProblemKind]:
    return kinds(
        broker_findings(
            asked_at_ms=asked_at_ms,
            error=Unavailable("refused"),
            limits=LIMITS,
            now_ms=now_ms,
            uptime_ms=now_ms,
        )
    )


def test_a_broker_that_does_not_answer() -> None:
    assert broker_at(60_000, None) == []
    assert broker_at(60_001, None) == [ProblemKind.BROKER_UNKNOWN]
    assert broker_at(100_000, 90_000) == []
    assert broker_at(100_001, 90_000) == [ProblemKind.BROKER_UNKNOWN]


def test_a_heartbeat_that_cannot_be_published() -> None:
    error = Unavailable("no broker")
    assert kinds(heartbeat_findings(error=None, failing_ms=10**9, most_ms=30_000)) == []
    assert kinds(heartbeat_findings(error=error, failing_ms=30_000, most_ms=30_000)) == []
    assert kinds(heartbeat_findings(error=error, failing_ms=30_001, most_ms=30_000)) == [
        ProblemKind.HEARTBEAT
    ]


@pytest.mark.parametrize(
    ("skew_ms", "words"), [(75_000, "75 s ahead of"), (-90_000, "90 s behind")]
)
def test_a_clock_that_is_wrong_says_which_way(skew_ms: int, words: str) -> None:
    found = skew_finding("node 2", skew_ms)
    assert (found.kind, found.subject) == (ProblemKind.CLOCK_SKEW, "node 2")
    assert words in found.text


def test_a_trim_whose_outcome_is_unknown_is_reported() -> None:
    found = unknown_trim_finding(PARTITION, 700)
    assert (found.kind, found.subject) == (ProblemKind.TRIM_UNKNOWN, "orders-3")
    assert "a trim to 700" in found.text


def test_a_broker_with_a_replica_and_no_live_service() -> None:
    replicas = {2: ["orders"], 3: ["a", "b", "c", "d"]}
    assert kinds(peer_findings(replicas, [2], LIMITS, 50_000)) == []
    [found] = peer_findings(replicas, [2], LIMITS, 50_001)
    assert (found.kind, found.subject) == (ProblemKind.PEER_ABSENT, "node 3")
    assert "a, b, c and 1 others" in found.text
    assert kinds(peer_findings(replicas, [2, 3], LIMITS, 50_001)) == []


def test_a_broker_without_replicas_where_every_broker_needs_a_service() -> None:
    [found] = peer_findings({2: ["orders"], 3: []}, [2], LIMITS, 50_001)
    assert (found.kind, found.subject) == (ProblemKind.PEER_ABSENT, "node 3")
    assert "learn brokers' own addresses there" in found.text


def test_stores_that_are_away_full_or_set_up_badly() -> None:
    asked = StoreObservation(name="hot", problem="not asked yet", was_well=False)
    assert kinds(store_findings([asked], LIMITS, 60_000)) == [ProblemKind.STARTING]
    assert kinds(store_findings([asked], LIMITS, 60_001)) == [ProblemKind.STORE_UNAVAILABLE]
    away = StoreObservation(name="hot", problem="the plugin is away", was_well=True)
    assert kinds(store_findings([away], LIMITS, 0)) == [ProblemKind.STORE_UNAVAILABLE]
    full = StoreObservation(
        name="hot", problem="", was_well=True, write_error="full", setup_alarms=("expiry",)
    )
    assert [(one.kind, one.subject) for one in store_findings([full], LIMITS, 0)] == [
        (ProblemKind.STORE_REFUSES_WRITES, "store hot"),
        (ProblemKind.STORE_SETUP, "store hot"),
    ]


@pytest.mark.parametrize(
    ("left_ms", "kind"),
    [
        (14 * 86_400_000 + 1, None),
        (14 * 86_400_000, ProblemKind.CERTIFICATE_ENDS_SOON),
        (1, ProblemKind.CERTIFICATE_ENDS_SOON),
        (0, ProblemKind.CERTIFICATE_ENDED),
        (-86_400_000, ProblemKind.CERTIFICATE_ENDED),
    ],
)
def test_certificates_end(left_ms: int, kind: ProblemKind | None) -> None:
    file = CertificateFile(path="api.pem", use="of the API", ends_at_ms=10**12 + left_ms)
    assert kinds(certificate_findings([file], LIMITS, 10**12)) == ([kind] if kind else [])


def test_a_certificate_that_cannot_be_read_is_an_alarm() -> None:
    file = CertificateFile(path="api.pem", use="of the API", ends_at_ms=None, error="EACCES")
    [found] = certificate_findings([file], LIMITS, 0)
    assert (found.kind, found.subject) == (ProblemKind.CERTIFICATE_ENDED, "api.pem")
    assert "EACCES" in found.text
