"""A partition led by a broker without a live service is an alarm within a minute (H18)."""

from pathlib import Path

import pytest

from rlm.plans.problems import ProblemKind, Severity
from tests.rlm.watched import HEARTBEAT_MS, Watched, with_replica

PEER = 2
MINUTE_MS = 60_000
WATCH_MS = 5_000
"""How often the problems are checked."""


async def led_elsewhere(tmp_path: Path) -> Watched:
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    with_replica(service.rig, PEER)
    service.rig.broker.elect(PEER, 1)
    await service.leadership.refresh()
    return service


async def absent_after_ms(service: Watched) -> int:
    """How long it takes until the alarm is there."""
    for waited_ms in range(0, 2 * MINUTE_MS, WATCH_MS):
        found = [one for one in service.watch.current() if one.kind is ProblemKind.PEER_ABSENT]
        if found:
            assert (found[0].subject, found[0].severity) == (f"node {PEER}", Severity.ALARM)
            return waited_ms
        service.rig.clock.advance(WATCH_MS)
        service.rig.heartbeat()
    raise AssertionError("no alarm")


@pytest.mark.parametrize("was_alive", [True, False])
async def test_h18_a_leader_without_a_live_service_is_an_alarm_within_a_minute(
    tmp_path: Path, was_alive: bool
) -> None:
    """A service that died, and one that never was, for a service that has just started."""
    service = await led_elsewhere(tmp_path)
    if was_alive:
        for _ in range(12):
            service.rig.clock.advance(HEARTBEAT_MS)
            service.rig.heartbeat(PEER)
            kinds = {one.kind for one in service.watch.current()}
            assert ProblemKind.PEER_ABSENT not in kinds
    waited_ms = await absent_after_ms(service)
    assert 3 * HEARTBEAT_MS <= waited_ms <= MINUTE_MS - WATCH_MS
