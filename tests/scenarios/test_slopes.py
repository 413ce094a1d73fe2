"""What a soak says of its samples."""

import pytest

from tests.scenarios.slopes import Allowance, grown, grown_by_restarts, slope, spans
from tests.scenarios.weights import MEMORY, PID, Weighing


def _taken(values: list[float], pid: int = 7) -> list[Weighing]:
    return [
        Weighing(at_s=30.0 * at, phase="all", weights={"rlm:1": {PID: pid, MEMORY: value}})
        for at, value in enumerate(values)
    ]


def _noise(count: int) -> list[float]:
    """Within 5 of 100, and every seventh far away."""
    return [100.0 + (37 * at % 11 - 5) + (40 if at % 7 == 3 else 0) for at in range(count)]


def test_a_leak_is_seen_through_noise_and_noise_is_none() -> None:
    allowed = {MEMORY: Allowance(most=4, percent=2)}
    calm = _noise(90)
    leaking = [value + 0.35 * at for at, value in enumerate(calm)]
    assert not grown([*spans(_taken(calm), MEMORY, settled_s=300)], allowed, least_s=600)
    [found] = grown([*spans(_taken(leaking), MEMORY, settled_s=300)], allowed, least_s=600)
    assert found.startswith("rlm:1 rss_mib: +7")
    assert slope([(30.0 * at, 0.35 * at) for at in range(90)]) == pytest.approx(7.0)


def test_what_fills_while_it_is_new_does_not_count_and_each_start_is_a_life() -> None:
    filling = [min(10.0 * at, 250.0) for at in range(60)]
    first = _taken(filling)
    second = [
        Weighing(at_s=one.at_s + 1_800, phase="all", weights=one.weights)
        for one in _taken([one / 2 for one in filling], pid=8)
    ]
    found = [*spans([*first, *second], MEMORY, settled_s=800)]
    assert [(one.pid, one.usual, one.slope) for one in found] == [(7, 250, 0), (8, 125, 0)]
    assert not grown_by_restarts(found, {MEMORY: Allowance(most=4)}, least_s=600)
    assert grown_by_restarts(found[::-1], {MEMORY: Allowance(most=4)}, least_s=600)
    assert all(one.slope > 0 for one in spans([*first, *second], MEMORY, settled_s=0))
