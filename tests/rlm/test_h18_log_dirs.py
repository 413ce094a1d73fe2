"""The broker's disk in problems, status and metrics (H18)."""

from dataclasses import replace
from pathlib import Path

from rlm.plans.problems import ProblemKind
from rlm.plans.trim import NoTrim
from tests.builders.rig import NODE_ID
from tests.rlm.watched import COPY_MS, FLOOR_BYTES, Watched

QUOTA_BYTES = 3 * FLOOR_BYTES
TEN_MINUTES_MS = 600_000


def _fill(service: Watched, size_bytes: int) -> Path:
    """A file of another topic."""
    path = service.rig.disk.path.parent / "other.log"
    path.write_bytes(b"1" * size_bytes)
    return path


async def test_h18_a_disk_below_its_floor_is_an_alarm_everywhere_until_it_is_well_above(
    tmp_path: Path,
) -> None:
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    service.rig.write_log(0, 10, 20, end=25)
    await service.run_tasks()
    await service.disks.measure()
    assert (await service.shown()).problems == ()
    filler = _fill(service, 2 * FLOOR_BYTES)
    await service.disks.measure()
    shown = await service.shown()
    [problem] = shown.problems
    assert (problem.kind, shown.exit_code) == (ProblemKind.LOG_DIR_LOW, 1)
    assert 'rlm_problems{kind="log-dir-low",severity="alarm"} 1.0' in shown.metrics
    filler.write_bytes(b"1" * (FLOOR_BYTES * 7 // 4))
    await service.disks.measure()
    assert [one.kind for one in service.watch.current()] == [ProblemKind.LOG_DIR_LOW]
    filler.unlink()
    await service.disks.measure()
    assert service.watch.current() == ()


async def test_h18_growth_and_the_time_until_a_disk_is_full_are_measured(tmp_path: Path) -> None:
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    service.rig.write_log(0, 10, 20, end=25)
    await service.run_tasks()
    await service.disks.measure()
    shown = await service.shown()
    assert "rlm_log_dir_full_seconds{" not in shown.metrics
    assert "log dir" in shown.stdout
    _fill(service, FLOOR_BYTES)
    await service.pass_time(TEN_MINUTES_MS)
    await service.disks.measure()
    [report] = service.log_dirs.reports()
    assert report.full_in_ms is not None
    assert TEN_MINUTES_MS < report.full_in_ms < 2 * TEN_MINUTES_MS
    shown = await service.shown()
    assert [one.kind for one in shown.problems] == [ProblemKind.LOG_DIR_FILLS]
    assert "rlm_log_dir_full_seconds{" in shown.metrics
    assert "19 min" in shown.stdout
    assert shown.exit_code == 0


async def test_h18_bytes_that_no_trim_may_delete_are_those_that_are_not_remote(
    tmp_path: Path,
) -> None:
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    rig = service.rig
    rig.write_log(0, 10, 20, end=25)
    await service.run_tasks()
    await service.disks.measure()
    [report] = service.log_dirs.reports()
    assert report.untrimmable_bytes == rig.disk.file(20, ".log").stat().st_size
    await service.pass_time(TEN_MINUTES_MS, heartbeats=())
    [report] = service.log_dirs.reports()
    snapshot = service.snapshots.of(rig.led)
    assert snapshot is not None
    assert report.untrimmable_bytes == snapshot.log.size_bytes


async def test_h38_bytes_that_no_trim_may_delete_follow_the_last_trim_and_the_lag(
    tmp_path: Path,
) -> None:
    """Each alone, though the snapshot is the same."""
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    rig = service.rig
    rig.write_log(0, 10, 20, end=25)
    await service.run_tasks()
    await service.disks.measure()
    service.log_dirs.reports()
    status = rig.trim.statuses[rig.led.key]
    rig.trim._statuses[rig.led.key] = replace(status, reason=NoTrim.TRIM_OFF.value)
    [report] = service.log_dirs.reports()
    snapshot = service.snapshots.of(rig.led)
    assert snapshot is not None
    assert report.untrimmable_bytes == snapshot.log.size_bytes
    rig.clock.advance(COPY_MS + 1)
    [report] = service.log_dirs.reports()
    assert (report.untrimmable_bytes, report.unmeasured_partitions) == (0, 1)


async def test_h38_a_partition_without_a_snapshot_is_unmeasured_and_not_zero(
    tmp_path: Path,
) -> None:
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    service.rig.write_log(0, end=25)
    service.rig.heartbeat(NODE_ID)
    await service.leadership.refresh()
    await service.disks.measure()
    [report] = service.log_dirs.reports()
    assert (report.untrimmable_bytes, report.unmeasured_partitions) == (0, 1)


async def test_h38_a_disk_that_cannot_be_measured_is_an_alarm(tmp_path: Path) -> None:
    service = Watched(tmp_path, quota_bytes=QUOTA_BYTES)
    service.rig.write_log(0, end=25)
    await service.run_tasks()
    await service.disks.measure()
    directory = service.rig.disk.path.parent
    directory.rename(directory.with_name("elsewhere"))
    await service.disks.measure()
    found = [one.kind for one in service.watch.current()]
    shown = await service.shown()
    directory.with_name("elsewhere").rename(directory)
    assert ProblemKind.LOG_DIR_UNKNOWN in found
    assert "rlm_log_dir_free_bytes{" not in shown.metrics
    assert "unknown" in shown.stdout
