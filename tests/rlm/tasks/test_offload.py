"""Thresholds of topics in the tasks: what waits for its copy, and what stays after it."""

from dataclasses import replace
from pathlib import Path

from rlm.log_dir.scanner import LocalSegment
from rlm.plans.offload import OffloadPolicy
from rlm.plans.trim import NoTrim
from rlmm.settings_records import OffloadThresholds
from tests.builders.ledger import PARTITION
from tests.builders.offload import DEFAULTS
from tests.builders.rig import Rig

HOUR_MS = 3_600_000


def with_thresholds(rig: Rig, **values: int) -> None:
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    offload = OffloadThresholds(**values)
    rig.settings.write(
        replace(record, local_retention_ms=4 * HOUR_MS, retention_ms=-1, offload=offload)
    )


async def test_a_segment_that_waits_is_not_behind_and_is_copied_when_it_is_old_enough(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    with_thresholds(rig, copy_lag_ms=HOUR_MS)
    rig.write_log(0, 100, 200, end=250)
    newest_ms = max(one.max_timestamp_ms for one in _closed(rig))
    rig.clock.advance(newest_ms + HOUR_MS - 1 - rig.clock.now_ms())
    await rig.copy.run(rig.led)
    status = rig.copy.statuses[PARTITION.key]
    assert (status.reason, status.behind_since_ms) == ("waiting for the copy lag", None)
    assert (status.pending_segments, status.lag_segments) == (0, 2)
    assert not rig.copy.is_due(await rig.snapshots.take(rig.led))
    rig.clock.advance(1)
    assert rig.copy.is_due(await rig.snapshots.take(rig.led))
    await rig.copy.run(rig.led)
    assert rig.copy.statuses[PARTITION.key].copied_next_offset == 200


def _closed(rig: Rig) -> list[LocalSegment]:
    found = rig.log_dirs.scan(PARTITION.topic, PARTITION.partition).segments
    return [one for one in found if one.is_closed]


async def test_the_local_part_stays_for_the_deletion_lag_by_the_brokers_clock(
    tmp_path: Path,
) -> None:
    """The time of the record's append counts; a service may have rules for many topics."""
    lag = OffloadPolicy(replace(DEFAULTS, deletion_lag_ms=HOUR_MS))
    rig = Rig(tmp_path, offload=lag)
    rig.write_log(0, 100, 200, end=250)
    rig.ledger.now_ms = rig.clock.now_ms()
    await rig.copy.run(rig.led)
    rig.clock.advance(HOUR_MS - 1)
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
    assert rig.trim.statuses[PARTITION.key].reason == NoTrim.DELETION_LAG.value
    rig.clock.advance(1)
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [200]
