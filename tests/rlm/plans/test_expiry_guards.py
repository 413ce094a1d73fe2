"""What forbids every expiry, and which time it goes by (G1, H16)."""

from dataclasses import replace

import pytest

from rlm.plans.copy import TopicState
from rlm.plans.expiry import (
    MOST_SKEW_MS,
    Clocks,
    ExpiryGuards,
    Held,
    NoExpiry,
    refuse_expiry,
    retention_now,
)
from rlm.plans.freeze import Frozen
from rlmm.settings_view import ClockSkew

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


GOOD = ExpiryGuards(
    ready=True,
    ledger_problem=None,
    freeze_record=None,
    frozen=None,
    topic=TopicState(enabled=True, internal=False, cleanup_policy="delete", native_tiering=False),
)


@pytest.mark.parametrize(
    ("guards", "reason"),
    [
        (replace(GOOD, ready=False), NoExpiry.NOT_READY),
        (replace(GOOD, ledger_problem="lost"), NoExpiry.LEDGER_PROBLEM),
        (replace(GOOD, freeze_record="by me"), NoExpiry.FREEZE_RECORD),
        (replace(GOOD, frozen=Frozen(reason="beyond")), NoExpiry.FROZEN),
        (replace(GOOD, topic=replace(GOOD.topic, enabled=False)), NoExpiry.TOPIC_REFUSED),
        (
            replace(GOOD, topic=replace(GOOD.topic, cleanup_policy="compact")),
            NoExpiry.TOPIC_REFUSED,
        ),
        (replace(GOOD, topic=replace(GOOD.topic, native_tiering=True)), NoExpiry.TOPIC_REFUSED),
        (GOOD, None),
    ],
)
def test_guards_forbid_every_deletion(guards: ExpiryGuards, reason: NoExpiry | None) -> None:
    held = refuse_expiry(guards)
    assert (held.reason if held else None) is reason
