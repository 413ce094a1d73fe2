"""No trim unless every live broker has said that its own retention is off (G1, H14)."""

from pathlib import Path

import pytest

from kip405.errors import Fenced, Unavailable
from rlm.plans.trim import NoTrim
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments copied; all of them may be trimmed."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


def held(rig: Rig) -> tuple[str, str]:
    status = rig.trim.statuses[PARTITION.key]
    return status.reason, status.detail


async def test_g1_all_brokers_are_asked_for_the_plan_and_again_before_the_trim(rig: Rig) -> None:
    await rig.trim.run(rig.led)
    assert (rig.broker.deleted, rig.retention.asked) == ([300], 2)


async def test_h14_a_retention_that_another_broker_has_stops_the_trim(rig: Rig) -> None:
    rig.retention.answer = "broker 2: retention.ms=604800000"
    await rig.trim.run(rig.led)
    assert held(rig) == (NoTrim.RETENTION_BOUNDED.value, "broker 2: retention.ms=604800000")
    assert rig.broker.deleted == []


async def test_g1_a_broker_that_does_not_answer_stops_the_trim_and_is_named(rig: Rig) -> None:
    rig.retention.error = Unavailable("broker 3: no answer")
    await rig.trim.run(rig.led)
    assert held(rig) == (NoTrim.RETENTION_UNKNOWN.value, "broker 3: no answer")
    assert rig.broker.deleted == []
    rig.retention.error = None
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


@pytest.mark.parametrize("change", ["bounded", "silent"])
async def test_h05_what_changes_after_the_plan_is_seen_before_the_trim(
    rig: Rig, change: str
) -> None:
    def changed() -> None:
        if change == "bounded":
            rig.retention.answer = "broker 2: retention.ms=1"
        else:
            rig.retention.error = Unavailable("broker 2: no answer")

    rig.retention.after_answer = changed
    with pytest.raises(Fenced, match="broker 2"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


@pytest.mark.parametrize(("mode", "trim"), [("copy", False), ("tier", False)])
async def test_g1_no_broker_is_asked_about_a_topic_that_is_not_trimmed(
    rig: Rig, mode: str, trim: bool
) -> None:
    rig.enable(mode=mode, trim=trim)
    await rig.trim.run(rig.led)
    assert (rig.broker.deleted, rig.retention.asked) == ([], 0)


async def test_h02_what_has_ended_is_deleted_whatever_other_brokers_say(rig: Rig) -> None:
    """It is not a trim: nobody may read these records any more."""
    rig.remote_start(150)
    rig.retention.error = Unavailable("broker 2: no answer")
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [150]
