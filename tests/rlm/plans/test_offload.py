"""When segments wait for their copy, which thresholds count, and which are refused (KIP-1241)."""

import re
from typing import Any

import pytest

from kip405.errors import Invalid
from rlm.config.offload import OffloadRule
from rlm.plans.copy import WhyNot, plan_copy
from rlm.plans.offload import CopyDelay, Offload, OffloadPolicy
from rlmm.settings_records import OffloadThresholds, TopicRecord, TotalRetention
from tests.builders.log_dir import TOPIC_ID
from tests.builders.offload import AT_ONCE, DEFAULTS
from tests.rlm.plans.views import copy_view, covered

DAY_MS = 86_400_000
OFF = TotalRetention()


def record(**changes: Any) -> TopicRecord:
    values: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "name": "orders",
        "mode": "tier",
        "state": "enabled",
        "trim": True,
        "retention_ms": -1,
        "retention_bytes": -1,
        "local_retention_ms": -2,
        "local_retention_bytes": -2,
    }
    return TopicRecord(**values | changes)


def lags(**values: int) -> OffloadThresholds:
    return OffloadThresholds(**values)


def delay(
    topic: TopicRecord, brokers: TotalRetention = OFF
) -> tuple[int | None, int | None] | None:
    found = AT_ONCE.copy_delay(topic, brokers)
    return None if found is None else (found.max_age_ms, found.max_newer_bytes)


def copied(max_age_ms: int | None, max_newer_bytes: int | None, now_ms: int, **view: Any) -> Any:
    wait = CopyDelay(max_age_ms=max_age_ms, max_newer_bytes=max_newer_bytes)
    plan = plan_copy(copy_view(delay=wait, now_ms=now_ms, **view))
    return [one.base_offset for one in plan.segments], plan.reason


@pytest.mark.parametrize(
    ("age_ms", "newer", "now_ms", "bases"),
    [
        # The newest records of segments 0, 100, 200 have the times 100, 200, 300; each has 1,000
        # bytes, and the active one too.
        (1_000, None, 1_099, []),
        (1_000, None, 1_100, [0]),
        (1_000, None, 1_200, [0, 100]),
        (1_000, None, 1_300, [0, 100, 200]),
        (None, 3_001, 10_000, []),
        (None, 3_000, 10_000, [0]),
        (None, 1_000, 10_000, [0, 100, 200]),
        (1_000, 3_000, 1_099, [0]),
        (1_000, 3_001, 1_100, [0]),
        (1_000, None, 99, [0, 100, 200]),
        (None, None, 10_000, []),
    ],
)
def test_a_segment_waits_for_its_age_or_for_what_follows_it(
    age_ms: int | None, newer: int | None, now_ms: int, bases: list[int]
) -> None:
    """By either of both; a record from the future holds nothing up."""
    found, reason = copied(age_ms, newer, now_ms)
    assert found == bases
    assert reason is (WhyNot.CAUGHT_UP if len(bases) == 3 else WhyNot.COPY_LAG)


def test_copies_stop_at_the_first_segment_that_waits() -> None:
    assert copied(1_000, None, 1_200, covered=covered((0, 100))) == ([100], WhyNot.COPY_LAG)
    assert copied(1_000, None, 1_200, covered=covered((100, 200))) == ([0], WhyNot.COPY_LAG)
    assert copied(1_000, None, 1_150, covered=covered((0, 300))) == ([], WhyNot.CAUGHT_UP)


def test_what_waits_is_named_with_what_ends_the_wait() -> None:
    plan = plan_copy(copy_view(delay=CopyDelay(max_age_ms=50, max_newer_bytes=9_000), now_ms=120))
    assert plan.detail == "it is 50 ms old or 9000 bytes follow it or `rlm copy`"
    assert plan.lag.segments == 3


@pytest.mark.parametrize(
    ("offload", "wanted"),
    [
        (lags(), None),
        (lags(copy_lag_ms=0, copy_lag_bytes=10), None),
        (lags(copy_lag_ms=10, copy_lag_bytes=0), None),
        (lags(copy_lag_ms=10), (10, 5_000)),
        (lags(copy_lag_bytes=10), (1_000, 10)),
        (lags(copy_lag_ms=2_000, copy_lag_bytes=6_000), (1_000, 5_000)),
        (lags(copy_lag_ms=-1, copy_lag_bytes=-1), (1_000, 5_000)),
    ],
)
def test_minus_one_and_the_one_that_is_not_set_are_as_local_retention(
    offload: OffloadThresholds, wanted: tuple[int, int] | None
) -> None:
    topic = record(offload=offload, local_retention_ms=1_000, local_retention_bytes=5_000)
    assert delay(topic) == wanted


def test_without_a_limit_of_local_retention_only_the_command_copies() -> None:
    assert delay(record(offload=lags(copy_lag_ms=-1))) == (None, None)


@pytest.mark.parametrize(
    ("brokers", "wanted"),
    [
        (OFF, (600, None)),
        (TotalRetention(retention_ms=1_000), (600, None)),
        (TotalRetention(retention_ms=600), (300, None)),
        (TotalRetention(retention_ms=0), None),
        (TotalRetention(retention_bytes=8_000), (600, 4_000)),
        (TotalRetention(retention_ms=0, retention_bytes=0), None),
    ],
)
def test_h15_a_copy_comes_before_the_brokers_own_retention_deletes(
    brokers: TotalRetention, wanted: tuple[int, int | None] | None
) -> None:
    """Brokers without tiering delete what is not copied: half of the retention is left for it."""
    assert delay(record(mode="copy", offload=lags(copy_lag_ms=600)), brokers) == wanted


def test_h15_where_a_retention_that_was_taken_over_is_bounded_nothing_waits() -> None:
    topic = record(offload=lags(copy_lag_ms=600))
    assert delay(topic) == (600, None)
    assert delay(topic, TotalRetention(retention_ms=DAY_MS)) is None


def test_the_topic_counts_before_the_rules_and_these_before_the_defaults() -> None:
    rules = (
        OffloadRule(topics=re.compile("ord"), thresholds=lags(copy_lag_ms=1)),
        OffloadRule(topics=re.compile("ord.*"), thresholds=lags(copy_lag_bytes=7)),
        OffloadRule(topics=re.compile(".*"), thresholds=lags(deletion_lag_ms=9)),
    )
    policy = OffloadPolicy(DEFAULTS, rules)

    def of(name: str, offload: OffloadThresholds = OffloadThresholds()) -> Offload:  # noqa: B008
        return policy.of(record(name=name, offload=offload))

    assert of("orders") == Offload(
        copy_lag_ms=-1,
        copy_lag_bytes=7,
        deletion_lag_ms=0,
        of_copy_lag="offload.rules",
        of_deletion_lag="the service's defaults",
    )
    assert of("other").deletion_lag_ms == 9
    assert (of("other").copy_lag_ms, of("other").copy_lag_bytes) == (0, -1)
    own = of("orders", lags(copy_lag_ms=5, deletion_lag_ms=0))
    assert (own.copy_lag_ms, own.copy_lag_bytes, own.deletion_lag_ms) == (5, -1, 0)
    assert (own.of_copy_lag, own.of_deletion_lag) == ("the topic", "the topic")


LOCAL = {"local_retention_ms": 100, "local_retention_bytes": 200}
TOTAL = {"retention_ms": 1_000, "retention_bytes": 2_000}


@pytest.mark.parametrize(
    ("offload", "topic", "words"),
    [
        (lags(copy_lag_ms=101), LOCAL, "remote.copy.lag.ms=101 .* local.retention.ms=100"),
        (lags(copy_lag_bytes=201), LOCAL, "remote.copy.lag.bytes=201 .* local.retention.bytes=200"),
        (lags(copy_lag_ms=1_000), TOTAL, "must be below retention.ms=1000; set a smaller"),
        (lags(copy_lag_bytes=2_000), TOTAL, "must be below retention.bytes=2000"),
        (lags(copy_lag_ms=500), {"mode": "copy"}, "the brokers' own retention.ms=500"),
        (lags(copy_lag_bytes=500), {"mode": "copy"}, "the brokers' own retention.bytes=500"),
        (lags(deletion_lag_ms=1_000), TOTAL, "offload.deletion.lag.ms=1000 .* retention.ms=1000"),
        (lags(copy_lag_ms=400, deletion_lag_ms=600), TOTAL, "begins 400 ms after"),
    ],
)
def test_a_threshold_that_is_not_below_retention_is_refused_with_what_to_do(
    offload: OffloadThresholds, topic: dict[str, Any], words: str
) -> None:
    brokers = TotalRetention(retention_ms=500, retention_bytes=500)
    with pytest.raises(Invalid, match=words) as error:
        AT_ONCE.check(record(offload=offload, **topic), brokers)
    assert "longer retention" in str(error.value)


@pytest.mark.parametrize(
    ("offload", "topic"),
    [
        (lags(copy_lag_ms=100, copy_lag_bytes=200), LOCAL),
        (lags(copy_lag_ms=999, copy_lag_bytes=1_999), TOTAL),
        (lags(copy_lag_ms=499, copy_lag_bytes=499), {"mode": "copy"}),
        (lags(copy_lag_ms=-1, copy_lag_bytes=-1, deletion_lag_ms=10), {}),
        (lags(copy_lag_ms=400, deletion_lag_ms=599), TOTAL),
        (lags(), {**TOTAL, "mode": "copy"}),
    ],
)
def test_what_is_below_retention_is_accepted(
    offload: OffloadThresholds, topic: dict[str, Any]
) -> None:
    brokers = TotalRetention(retention_ms=500, retention_bytes=500)
    AT_ONCE.check(record(offload=offload, **topic), brokers)
