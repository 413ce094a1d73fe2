"""No trim without a live service beside every replica, whatever clocks say (G1, H16, H18)."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.plans.trim import NoTrim
from rlmm.settings_records import ServiceRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig

TEN_HOURS_MS = 10 * 3_600_000
A_DAY_MS = 86_400_000
NODE2 = ServiceRecord(node_id=2, listen={}, advertised={}, version="1")


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments copied; brokers 1 and 2 have a replica, we are 1."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    made.broker.partition = replace(made.broker.partition, replicas=(1, 2), isr=(1, 2))
    return made


def reason(rig: Rig) -> str:
    return rig.trim.statuses[PARTITION.key].reason


@pytest.mark.parametrize("ahead_ms", [A_DAY_MS, 0])
async def test_h16_a_dead_service_whose_clock_was_ahead_is_dead(rig: Rig, ahead_ms: int) -> None:
    rig.settings.now_ms = rig.clock.now + ahead_ms
    rig.settings.write(NODE2, node_id=2)
    rig.clock.advance(TEN_HOURS_MS)
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.NO_LIVE_SERVICE.value
    assert rig.broker.deleted == []


async def test_h16_a_live_service_whose_clock_is_behind_is_live(rig: Rig) -> None:
    rig.settings.now_ms = rig.clock.now - A_DAY_MS
    rig.settings.write(NODE2, node_id=2)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def test_h16_our_own_wall_clock_revives_nobody(rig: Rig) -> None:
    rig.heartbeat(2)
    rig.clock.advance(TEN_HOURS_MS)
    rig.heartbeat()
    rig.clock.wall_ahead_ms = -TEN_HOURS_MS
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.NO_LIVE_SERVICE.value


async def test_h18_heartbeats_of_before_our_start_are_no_sign_of_life(rig: Rig) -> None:
    rig.settings.is_replay = True
    rig.heartbeat(2)
    rig.settings.is_replay = False
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert reason(rig) == NoTrim.NO_LIVE_SERVICE.value
    rig.heartbeat(2)
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
