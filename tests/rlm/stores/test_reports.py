"""What findings mean for topics: alarms before data is lost, hints, and what is not known."""

import pytest

from kip405.contracts import NEEDED_VERSIONS, FindingKind, StoreFinding
from rlm.stores.reports import (
    DAY_MS,
    UNLIMITED,
    Level,
    StoredTopic,
    Verdict,
    concerns,
    evaluate,
    prefix_of,
)

FOLDER = "c1/orders-AAAAAAAAAAAAAAAAAAAAAA"
MONTH = StoredTopic(name="orders", retention_ms=30 * DAY_MS, folder=FOLDER)
FOREVER = StoredTopic(name="audit", retention_ms=UNLIMITED, folder="c1/audit-BBBB")


def expiry(days: int | None, applies_to: str = "", state: str = "Expiration") -> StoreFinding:
    return StoreFinding(
        kind=FindingKind.LIFECYCLE_EXPIRY, state=state, days=days, applies_to=applies_to
    )


def evaluated(
    *findings: StoreFinding,
    topics: tuple[StoredTopic, ...] = (MONTH,),
    prefix: str | None = "kafka",
) -> tuple[Verdict, ...]:
    return evaluate(findings, topics, prefix)


def alarms(*verdicts: Verdict) -> list[str]:
    return [one.text for one in verdicts if one.level is Level.ALARM]


@pytest.mark.parametrize(
    ("days", "is_alarm"), [(1, True), (29, True), (30, False), (365, False), (None, True)]
)
def test_h11_an_expiry_below_the_total_retention_is_an_alarm(
    days: int | None, is_alarm: bool
) -> None:
    found = alarms(*evaluated(expiry(days, "kafka/c1/")))
    assert bool(found) is is_alarm
    if found:
        assert "orders (kept 30 d)" in found[0]


def test_h25_a_move_into_an_archive_below_the_total_retention_is_an_alarm() -> None:
    early, late = (expiry(days, "kafka/c1/", "Transition to GLACIER") for days in (29, 30))
    (text,) = alarms(*evaluated(early))
    assert "archives objects (Transition to GLACIER), unreadable after 29 d" in text
    assert alarms(*evaluated(late)) == []


def test_h11_what_is_kept_without_limit_outlives_no_expiry() -> None:
    (text,) = alarms(*evaluated(expiry(36_500, "kafka/c1/"), topics=(MONTH, FOREVER)))
    assert "audit (kept without limit)" in text
    assert "orders" not in text


def test_h11_an_expiry_of_the_identity_is_an_alarm_however_long_it_is() -> None:
    (text,) = alarms(*evaluated(expiry(36_500), topics=()))
    assert "kafka/rlm-store.json among them" in text
    assert not alarms(*evaluated(expiry(36_500, "kafka/c1/"), topics=()))


def test_an_expiry_that_meets_nothing_of_ours_is_neither_alarm_nor_hint() -> None:
    (verdict,) = evaluated(expiry(1, "kafka/c2/"))
    assert verdict.level is Level.FACT
    assert "nothing of ours too early" in verdict.text


@pytest.mark.parametrize(
    ("applies_to", "prefix", "met"),
    [
        ("", "kafka", True),
        ("kaf", "kafka", True),
        ("kafka/", "kafka", True),
        ("kafka/c1", "kafka", True),
        ("kafka/c1/orders", "kafka", True),
        (f"kafka/{FOLDER}/0/", "kafka", True),
        ("kafka/c1/audit", "kafka", False),
        ("kafka/c2/", "kafka", False),
        ("kafka2/", "kafka", False),
        ("other/", "kafka", False),
        ("other/", None, True),
        ("kafka/01", "kafka", True),
        ("kafka/01/", "kafka", True),
        ("kafka/01/c1/ord", "kafka", True),
        ("kafka/01/c2/", "kafka", False),
        ("kafka/2/", "kafka", False),
        ("c1/orders", "", True),
        ("c1/payments", "", False),
        ("0", "", True),
    ],
)
def test_which_keys_a_rule_meets(applies_to: str, prefix: str | None, met: bool) -> None:
    assert concerns(applies_to, prefix, FOLDER) is met


def test_a_topic_in_an_unknown_store_counts_as_met() -> None:
    assert concerns("other/", "kafka", "")


@pytest.mark.parametrize(
    ("finding", "level", "words"),
    [
        (StoreFinding(kind=FindingKind.MULTIPART_ABORT, state="absent"), Level.HINT, "multipart"),
        (
            StoreFinding(
                kind=FindingKind.MULTIPART_ABORT, state="AbortIncompleteMultipartUpload", days=7
            ),
            Level.FACT,
            "removed after 7 d",
        ),
        (StoreFinding(kind=FindingKind.VERSIONING, state="Enabled"), Level.HINT, "Noncurrent"),
        (
            StoreFinding(kind=FindingKind.VERSIONING, state=NEEDED_VERSIONS, applies_to="theirs"),
            Level.FACT,
            "no rule may end noncurrent versions below 'theirs'",
        ),
        (StoreFinding(kind=FindingKind.VERSIONING, state="absent"), Level.FACT, "absent"),
        (StoreFinding(kind=FindingKind.VERSIONING, state="Suspended"), Level.FACT, "Suspended"),
        (
            StoreFinding(kind=FindingKind.OBJECT_LOCK, state="COMPLIANCE", days=90),
            Level.HINT,
            "before it is 90 d old",
        ),
        (StoreFinding(kind=FindingKind.OBJECT_LOCK, state="Enabled"), Level.FACT, "without a def"),
        (StoreFinding(kind=FindingKind.OBJECT_LOCK, state="absent"), Level.FACT, "no object lock"),
        (expiry(None, state="absent"), Level.FACT, "no lifecycle rule"),
        (expiry(None, state="unknown: AccessDenied"), Level.UNKNOWN, "unknown: AccessDenied"),
        (StoreFinding(kind=FindingKind.REPLICATION, state="1", value=1), Level.HINT, "one copy"),
        (StoreFinding(kind=FindingKind.REPLICATION, state="3", value=3), Level.FACT, "3"),
        (StoreFinding(kind=FindingKind.FREE_SPACE, state="5 free", value=5), Level.FACT, "5 free"),
    ],
)
def test_each_kind_has_its_meaning(finding: StoreFinding, level: Level, words: str) -> None:
    (verdict,) = evaluated(finding)
    assert verdict.level is level
    assert words in verdict.text


def test_versioning_with_a_rule_for_noncurrent_versions_is_neither_alarm_nor_hint() -> None:
    rule = expiry(14, state="NoncurrentVersionExpiration")
    on = StoreFinding(kind=FindingKind.VERSIONING, state="Enabled")
    (verdict,) = evaluated(on, rule)
    assert verdict.level is Level.FACT
    assert "of the whole bucket after 14 d" in verdict.text


def test_a_store_that_reports_nothing_is_reported() -> None:
    (verdict,) = evaluated()
    assert verdict.level is Level.UNKNOWN


def test_the_gravest_comes_first() -> None:
    found = evaluated(
        StoreFinding(kind=FindingKind.OBJECT_LOCK, state="absent"),
        expiry(1, "kafka/c1/"),
        StoreFinding(kind=FindingKind.MULTIPART_ABORT, state="absent"),
        StoreFinding(kind=FindingKind.VERSIONING, state="unknown: AccessDenied"),
    )
    assert [one.level for one in found] == list(Level)


def test_many_topics_are_not_all_named() -> None:
    topics = tuple(
        StoredTopic(name=f"t{number}", retention_ms=UNLIMITED, folder=FOLDER) for number in range(8)
    )
    (text,) = alarms(*evaluated(expiry(1, "kafka/c1/"), topics=topics))
    assert "t4 (kept without limit) and 3 more" in text


def test_prefixes() -> None:
    assert prefix_of("s3://bucket/a/b", None) == "a/b"
    assert prefix_of("s3://bucket", None) == ""
    assert prefix_of("s3://bucket/a", "b") == "b"
    assert prefix_of("file:///srv/a", None) is None
