"""Retention values by Kafka's rules (LogConfig)."""

import pytest

from kip405.errors import Invalid
from rlm.plans.retention import (
    LocalRetention,
    Retention,
    effective_local_retention,
)


@pytest.mark.parametrize(("total", "local"), [(100, 101), (100, -1), (-2, -2), (100, -3)])
def test_what_log_config_refuses_is_refused(total: int, local: int) -> None:
    with pytest.raises(Invalid, match=r"retention\.ms"):
        Retention(total_ms=total, total_bytes=-1, local_ms=local)
    with pytest.raises(Invalid, match=r"retention\.bytes"):
        Retention(total_ms=-1, total_bytes=total, local_bytes=local)


@pytest.mark.parametrize(
    ("total", "local", "wanted"),
    [(100, -2, 100), (100, 40, 40), (100, 100, 100), (-1, -2, None), (-1, -1, None), (-1, 7, 7)],
)
def test_effective_local_retention(total: int, local: int, wanted: int | None) -> None:
    found = effective_local_retention(
        Retention(total_ms=total, total_bytes=total, local_ms=local, local_bytes=local)
    )
    assert found == LocalRetention(max_age_ms=wanted, max_bytes=wanted)
    assert found.is_unlimited == (wanted is None)
