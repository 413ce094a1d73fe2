"""What forbids every expiry, and which time it goes by (G1, H16)."""

from dataclasses import replace

import pytest

from rlm.plans.copy import TopicState
from rlm.plans.expiry import (
    MOST_SKEW_MS,
    Clocks,
    Held,
    NoExpiry,
    refuse_expiry,
    retention_now,
)
from rlm.plans.freeze import Frozen
from rlm.plans.guards import DeletionGuards
from rlmm.settings_view import ClockSkew
from tests.rlm.plans.views import GOOD_TOPIC, NOTHING_FORBIDS

NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("own_ms", "log_ms", "expected"),
    [
        (NOW_MS, NOW_MS, NOW_MS),
        (NOW_MS + 7, NOW_MS, NOW_MS),
        (NOW_MS - 7, NOW_MS, NOW_MS - 7),
        (NOW_MS + MOST_SKEW_MS, NOW_MS, NOW_MS),
        (NOW_MS + MOST_SKEW_MS + 1, NOW_MS, None),
        (NOW_MS - MOST_SKEW_MS - 1, NOW_MS, None),
        (NOW_MS, None, None),
    ],
)
def test_h16_the_time_is_the_earlier_of_two_clocks_that_agree(
    own_ms: int, log_ms: int | None, expected: int | None
) -> None:
    found = retention_now(Clocks(own_ms=own_ms, log_ms=log_ms))
    if expected is None:
        assert isinstance(found, Held)
        assert found.reason is NoExpiry.CLOCK
    else:
        assert found == expected


@pytest.mark.parametrize(("skew_ms", "held"), [(-MOST_SKEW_MS, False), (-MOST_SKEW_MS - 1, True)])
def test_h16_a_wrong_host_whose_broker_stamps_the_settings_is_found_by_the_others(
    skew_ms: int, held: bool
) -> None:
    """Our clock and the brokers' agree, as both are of one host; another service disagrees."""
    skew = ClockSkew(node_id=2, who="service/2", skew_ms=skew_ms)
    found = retention_now(Clocks(own_ms=NOW_MS, log_ms=NOW_MS, others=(skew,)))
    assert isinstance(found, Held) is held


@pytest.mark.parametrize(
    ("guards", "reason"),
    [
        (replace(NOTHING_FORBIDS, ready=False), NoExpiry.NOT_READY),
        (replace(NOTHING_FORBIDS, ledger_problem="lost"), NoExpiry.LEDGER_PROBLEM),
        (replace(NOTHING_FORBIDS, freeze_record="by me"), NoExpiry.FREEZE_RECORD),
        (replace(NOTHING_FORBIDS, frozen=Frozen(reason="beyond")), NoExpiry.FROZEN),
        (NOTHING_FORBIDS, None),
    ],
)
def test_guards_forbid_every_deletion(guards: DeletionGuards, reason: NoExpiry | None) -> None:
    held = refuse_expiry(guards, GOOD_TOPIC)
    assert (held.reason if held else None) is reason


@pytest.mark.parametrize(
    "topic",
    [
        replace(GOOD_TOPIC, enabled=False),
        replace(GOOD_TOPIC, cleanup_policy="compact"),
        replace(GOOD_TOPIC, native_tiering=True),
    ],
)
def test_h35_a_topic_that_must_not_be_tiered_does_not_expire(topic: TopicState) -> None:
    held = refuse_expiry(NOTHING_FORBIDS, topic)
    assert held is not None and held.reason is NoExpiry.TOPIC_REFUSED
