"""Losses to the broker's own retention, before and after, in problems, status and metrics (H15)."""

from pathlib import Path

from rlm.plans.problems import ProblemKind
from tests.rlm.tasks.test_hole_watch import delete_up_to, take_store_away
from tests.rlm.watched import LOSS_MS, Watched

WEEK_MS = 7 * 86_400_000


def kinds(service: Watched) -> set[ProblemKind]:
    return {one.kind for one in service.watch.current()}


async def test_h15_a_loss_is_predicted_alarmed_before_it_happens_and_shown_after_it(
    tmp_path: Path,
) -> None:
    service = Watched(tmp_path)
    rig = service.rig
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = str(WEEK_MS)
    rig.write_log(0, 100, 200, end=250)
    take_store_away(rig)
    await service.run_tasks()
    left_ms = service.status.loss_in_ms(rig.clock.now_ms())
    assert left_ms is not None
    rig.remote_start(0)
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    assert ProblemKind.LOSS_NEAR not in kinds(service)
    rig.clock.now += left_ms - LOSS_MS + 1
    await service.run_tasks()
    shown = await service.shown()
    [text] = [one.text for one in shown.problems if one.kind is ProblemKind.LOSS_NEAR]
    assert "offsets 0 to 100" in text
    assert "rlm_partition_loss_seconds{" in shown.metrics
    assert shown.exit_code == 1
    delete_up_to(rig, 100)
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    assert (service.status.holes, service.status.hole_offsets) == (1, 100)
    shown = await service.shown()
    assert 'rlm_partition_lost_offsets{partition="0",topic="orders"} 100.0' in shown.metrics


async def test_h15_without_a_bound_nothing_is_predicted(tmp_path: Path) -> None:
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, 200, end=250)
    take_store_away(service.rig)
    await service.run_tasks()
    assert service.status.loss_at_ms is None
    assert ProblemKind.LOSS_NEAR not in kinds(service)
    assert "rlm_partition_loss_seconds{" not in (await service.shown()).metrics
