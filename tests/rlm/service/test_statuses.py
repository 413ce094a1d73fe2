"""The status of partitions: built again only when something that it shows has changed."""

from pathlib import Path

import pytest

from kip405.errors import Corrupt, Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.service.partition_gauges import PartitionGauges
from rlmm.ledger import Hole, PartitionLedger
from rlmm.settings_records import HolesRecord
from tests.builders.ledger import PARTITION, metadata
from tests.rlm.watched import COPY_MS, Watched

DAY_MS = 86_400_000


@pytest.fixture
async def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path)
    made.rig.write_log(0, 100, 250, end=300)
    await made.run_tasks()
    return made


def pin(watched: Watched, view: PartitionLedger) -> None:
    """The manager gives one view until a record comes; the memory ledger builds one each time."""
    watched.rig.ledger.ledger = lambda key: view  # type: ignore[method-assign]


async def test_a_status_is_kept_while_nothing_changes(watched: Watched) -> None:
    view = watched.rig.ledger.view
    pin(watched, view)
    [first] = watched.led()
    assert watched.led()[0] is first
    assert first.remote_segments == len(view.entries) > 0


async def test_a_status_follows_what_it_shows(watched: Watched) -> None:
    rig = watched.rig
    pin(watched, rig.ledger.view)
    assert watched.led()[0].remote_log_start_offset == 0
    rig.remote_start(100)
    assert watched.led()[0].remote_log_start_offset == 100
    hole = Hole(start=110, end=120, cause="test")
    rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)))
    assert watched.led()[0].hole_offsets == 10
    assert watched.led()[0].hole_ranges == ((110, 120),)
    begun = metadata(9, 250, 300, {0: 0}, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    rig.ledger.write(begun, epoch=0)
    pin(watched, PartitionLedger.of(PARTITION.key, rig.ledger.state.partitions[PARTITION.key]))
    [shown] = watched.led()
    assert (shown.unfinished_copies, shown.unfinished_copy_bytes) == (((250, 300),), 1)
    for number, start, end in ((10, 250, 300), (11, 0, 100)):  # tried again; remote by now
        begun = metadata(number, start, end, {0: 0}, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        rig.ledger.write(begun, epoch=0)
    pin(watched, PartitionLedger.of(PARTITION.key, rig.ledger.state.partitions[PARTITION.key]))
    [shown] = watched.led()
    assert (shown.unfinished_copies, shown.unfinished_copy_bytes) == (((250, 300),), 1)
    assert shown.local_size_bytes == rig.log_dirs.scan(PARTITION.topic, 0).size_bytes > 0
    pin(watched, PartitionLedger.empty(PARTITION.key))
    assert watched.led()[0].remote_segments == 0


async def test_a_partition_that_is_not_led_any_more_has_no_status(watched: Watched) -> None:
    assert len(watched.led()) == 1
    watched.rig.broker.elect(2, 1)
    await watched.leadership.refresh()
    assert PARTITION.key in watched.leadership.snapshot.partitions
    assert watched.led() == ()


async def test_h38_the_lines_of_a_scrape_follow_the_statuses(watched: Watched) -> None:
    gauges = PartitionGauges(watched.rig.clock)
    assert gauges.read(watched.led())["rlm_remote_log_start_offset"].endswith(" 0.0\n")
    watched.rig.remote_start(100)
    assert gauges.read(watched.led())["rlm_remote_log_start_offset"].endswith(" 100.0\n")
    assert set(gauges.read(()).values()) == {""}


async def test_h38_a_lag_has_no_sample_once_it_is_unknown(watched: Watched) -> None:
    gauges = PartitionGauges(watched.rig.clock)
    assert gauges.read(watched.led())["rlm_remote_copy_lag_bytes"].endswith(" 0.0\n")
    watched.rig.clock.advance(COPY_MS + 1)
    assert gauges.read(watched.led())["rlm_remote_copy_lag_bytes"] == ""


async def test_h38_the_time_until_a_loss_passes_although_nothing_changes(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    rig = watched.rig
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = str(DAY_MS)
    rig.write_log(0, 100, 200, end=250)
    rig.store.before = _away
    await watched.run_tasks()
    pin(watched, rig.ledger.view)
    gauges = PartitionGauges(rig.clock)

    def left_s() -> float:
        return float(gauges.read(watched.led())["rlm_partition_loss_seconds"].split()[-1])

    [first], before_s = watched.led(), left_s()
    assert 0 < before_s < DAY_MS / 1000
    rig.clock.advance(5_000)
    assert left_s() == before_s - 5
    assert watched.led()[0] is first
    rig.clock.advance(DAY_MS)
    assert left_s() == 0


async def test_h38_an_alarm_and_a_failed_task_are_in_the_status_while_they_last(
    watched: Watched,
) -> None:
    view = watched.rig.ledger.view
    pin(watched, view)

    async def fail() -> None:
        raise Corrupt("a batch is damaged")

    async def work() -> None:
        """It succeeds."""

    [calm] = watched.led()
    assert (calm.alarms, calm.last_error) == ((), "")
    await watched._work(watched.copy_pool, fail)
    [failing] = watched.led()
    assert failing.last_error == "Corrupt: a batch is damaged"
    [alarm] = failing.alarms
    assert "a batch is damaged" in alarm
    assert watched.led()[0] is failing
    await watched._work(watched.copy_pool, work)
    [again] = watched.led()
    assert (again.alarms, again.last_error) == ((), "")


async def test_a_new_status_of_one_partition_is_as_that_of_all(watched: Watched) -> None:
    watched.rig.remote_start(100)
    assert await watched.statuses.current(PARTITION.key) == watched.status


async def test_h38_what_is_to_be_copied_counts_the_partitions_of_which_nobody_knows(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    rig, problems = watched.rig, watched.statuses._partition_problems

    def copying() -> tuple[int, int, int]:
        found = problems.copying()
        left = found.progress
        return left.segments_left, left.bytes_left, found.unmeasured_partitions

    rig.write_log(0, 100, end=150)
    await watched.leadership.refresh()
    assert copying() == (0, 0, 1), "just started"
    rig.store.before = _away
    await watched.run_tasks()
    size_bytes = rig.copy.statuses[PARTITION.key].pending_bytes
    assert copying() == (1, size_bytes, 0)
    assert size_bytes > 0
    rig.clock.advance(COPY_MS + 1)
    assert copying() == (0, 0, 1), "measured too long ago"
    await watched.run_tasks()
    assert copying() == (1, size_bytes, 0)
    rig.broker.elect(2, 1)
    await watched.leadership.refresh()
    assert copying() == (0, 0, 0), "led elsewhere, although no task has noticed it"


async def test_h38_before_the_first_snapshot_nobody_knows_whether_a_partition_is_frozen(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    gauges = PartitionGauges(watched.rig.clock)

    def frozen() -> str:
        return gauges.read(watched.led())["rlm_partition_frozen"]

    watched.rig.write_log(0, 100, end=150)
    await watched.leadership.refresh()
    assert frozen() == ""
    await watched.run_tasks()
    assert frozen().endswith(" 0.0\n")
    watched.rig.begin_epoch(1, 150)
    await watched.leadership.refresh()
    assert frozen() == "", "another leadership"


def _away(_call: str) -> None:
    raise Unavailable("the store is away")
