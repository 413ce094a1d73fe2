"""Verification at intervals: what is lost is noticed without a reader, and becomes a problem."""

from pathlib import Path

import pytest

from kip405.ids import Uuid
from rlm.broker.leadership import LedPartition
from rlm.plans.problems import Finding, ProblemKind
from rlm.tasks.verify_watch import VerifyWatch
from rlmm.ledger import Hole
from rlmm.settings_records import HolesRecord
from rsm_plugins.layout.keys import ObjectKind
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.rlm.tasks.test_verification import leave, name_of, segment

DAY_MS = 86_400_000


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) remote and trimmed; [300, 350) local."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    await made.trim.run(made.led)
    return made


def watch(rig: Rig, *, interval_ms: int = DAY_MS) -> VerifyWatch:
    return VerifyWatch(
        verifier=rig.verifier,
        led=lambda: (rig.led,) if rig.led_rows is None else rig.led_rows,
        losses=rig.losses,
        clock=rig.clock,
        interval_ms=interval_ms,
    )


def kinds(made: VerifyWatch) -> list[ProblemKind]:
    return [finding.kind for finding in made.findings()]


def only(made: VerifyWatch) -> Finding:
    (finding,) = made.findings()
    return finding


async def verified(made: VerifyWatch, rig: Rig) -> None:
    """The first verification, which comes within an hour."""
    await made.verify_due()
    rig.clock.advance(3_600_000)
    await made.verify_due()


async def test_a_whole_partition_is_no_problem_and_is_asked_for_once_a_day(rig: Rig) -> None:
    made = watch(rig)
    await verified(made, rig)
    assert kinds(made) == []
    asked = len(rig.broker.asked)
    rig.clock.advance(DAY_MS // 2)
    await made.verify_due()
    assert len(rig.broker.asked) == asked
    rig.clock.advance(DAY_MS)
    await made.verify_due()
    assert len(rig.broker.asked) > asked


async def test_h11_what_is_lost_becomes_readers_alarm_and_is_not_reported_twice(rig: Rig) -> None:
    made = watch(rig)
    del rig.store.objects[name_of(rig, 100, ObjectKind.LOG)]
    await verified(made, rig)
    assert rig.losses.segments(PARTITION.key) == {segment(rig, 100).segment_id.id}
    assert kinds(made) == []
    rig.losses.forget(PARTITION.key, segment(rig, 100).segment_id.id)
    assert only(made).kind is ProblemKind.SEGMENT_LOST


async def test_h11_a_lost_manifest_is_an_alarm_though_readers_do_not_need_it(rig: Rig) -> None:
    made = watch(rig)
    del rig.store.objects[name_of(rig, 100, ObjectKind.MANIFEST)]
    await verified(made, rig)
    finding = only(made)
    assert finding.kind is ProblemKind.SEGMENT_LOST
    assert finding.subject == "orders-0"
    assert "offsets 100 to 200" in finding.text


async def test_h15_a_gap_is_an_alarm_until_it_is_verified_again_which_is_soon(rig: Rig) -> None:
    made = watch(rig)
    leave(rig, segment(rig, 100))
    await verified(made, rig)
    finding = only(made)
    assert (finding.kind, finding.topic) == (ProblemKind.OFFSETS_MISSING, "orders")
    assert "offsets 100 to 200" in finding.text
    hole = Hole(start=100, end=200, cause="accepted loss: ann")
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)))
    rig.clock.advance(900_000)
    await made.verify_due()
    assert kinds(made) == []


async def test_h38_what_is_not_verified_for_two_intervals_is_a_problem(rig: Rig) -> None:
    made = watch(rig)
    rig.store.identity = None
    await verified(made, rig)
    assert kinds(made) == []  # a store that is away is a problem already
    rig.clock.advance(2 * DAY_MS)
    await made.verify_due()
    finding = only(made)
    assert finding.kind is ProblemKind.NOT_VERIFIED
    assert "3 segments in store" in finding.text


async def test_h38_a_watch_that_does_not_come_to_a_partition_is_a_problem(rig: Rig) -> None:
    made = watch(rig, interval_ms=1)
    await made.verify_due()
    rig.clock.advance(3 * 3_600_000)
    assert only(made).kind is ProblemKind.NOT_VERIFIED
    assert "its turn has not come" in only(made).text


async def test_what_is_not_led_any_more_is_forgotten(rig: Rig) -> None:
    made = watch(rig)
    leave(rig, segment(rig, 100))
    await verified(made, rig)
    row, rig.led_rows = rig.led, ()
    assert kinds(made) == []
    await made.verify_due()
    rig.led_rows = (row,)
    assert kinds(made) == []


async def test_partitions_are_not_verified_in_step(rig: Rig) -> None:
    """By a hash of the name: the same in every process, and spread over an hour."""
    made = watch(rig)
    rows = [_row(rig, number) for number in range(20)]
    rig.led_rows = tuple(rows)
    await made.verify_due()
    rig.clock.advance(1_200_000)
    before = rig.broker.asked.count("topic")
    await made.verify_due()
    assert 0 < rig.broker.asked.count("topic") - before < 20


def _row(rig: Rig, number: int) -> LedPartition:
    led = rig.led
    return LedPartition(
        topic_id_partition=type(led.topic_id_partition)(
            topic_id=Uuid(number.to_bytes(16, "big")), topic="orders", partition=number
        ),
        leader=led.leader,
        leader_epoch=led.leader_epoch,
        replicas=led.replicas,
        isr=led.isr,
    )
