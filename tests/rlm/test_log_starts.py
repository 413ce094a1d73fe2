"""The remote log start moves up only, on a view that is up to date (H1, H2)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.ids import TopicIdPartition
from rlm.remote_log.log_starts import LogStarts, Settings
from rlmm.settings_records import CAUSE_RETENTION, FreezeRecord, SettingsRecord, StartRecord
from tests.builders.audit import nothing_to_check
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def raised(
    rig: Rig,
    offset: int,
    *,
    partition: TopicIdPartition = PARTITION,
    settings: Settings | None = None,
    check: Callable[[], Awaitable[object]] = nothing_to_check,
) -> int:
    starts = LogStarts(
        settings=settings or rig.settings, audit=rig.audit, barrier_deadline_ms=1_000
    )
    return await starts.raise_to(
        partition,
        offset,
        leader_epoch=rig.broker.partition.leader_epoch,
        cause=CAUSE_RETENTION,
        check=check,
    )


async def test_h02_a_start_moves_up_and_says_why(rig: Rig) -> None:
    rig.remote_start(120)
    assert await raised(rig, 150) == 150
    adopted = rig.settings.view.get(f"start/{PARTITION.key}")
    assert adopted is not None and isinstance(adopted.record, StartRecord)
    assert (adopted.record.remote_log_start_offset, adopted.record.cause) == (150, "retention")
    assert adopted.record.decided_epoch == rig.broker.partition.leader_epoch
    assert rig.audit.starts == [150]


async def test_h02_a_start_never_goes_back(rig: Rig) -> None:
    rig.remote_start(120)
    written = rig.settings.view.next_offset
    assert await raised(rig, 50) == 120
    assert await raised(rig, 120) == 120
    assert rig.settings.view.next_offset == written
    assert rig.audit.starts == []


async def test_h02_a_start_is_moved_on_a_view_that_is_up_to_date(rig: Rig) -> None:
    rig.remote_start(120)
    rig.settings.lags = True
    rig.remote_start(300)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 120
    assert await raised(rig, 200) == 300
    assert rig.audit.starts == [], "it would be a line without a raise"


async def test_h01_what_was_changed_while_the_audit_log_was_written_counts(rig: Rig) -> None:
    """Its disk may be slow, and somebody lengthens the retention meanwhile, at another service."""
    rig.remote_start(120)
    rig.settings.lags = True
    freeze = FreezeRecord(topic_id=None, by="admin", why="tests", stopped=("delete",))
    rig.audit.before_write = lambda: rig.settings.write(freeze)

    async def check() -> None:
        if rig.settings.view.stopped_by(PARTITION.topic_id, "delete") is not None:
            raise Fenced("the reason has ended")

    with pytest.raises(Fenced, match="has ended"):
        await raised(rig, 150, check=check)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 120


async def test_h02_without_a_start_there_is_none_to_move(rig: Rig) -> None:
    rig.remote_start(120)
    with pytest.raises(Invalid, match="no remote log start"):
        await raised(rig, 50, partition=replace(PARTITION, partition=9))


class Overtaken:
    """The rig's settings; another cause raises the start just before a record is published."""

    def __init__(self, rig: Rig, offset: int) -> None:
        self._rig, self._offset = rig, offset
        self.view = rig.settings.view

    async def barrier(self, deadline_ms: int) -> None:
        await self._rig.settings.barrier(deadline_ms)

    async def publish(self, record: SettingsRecord, leader_epoch: int) -> None:
        self._rig.remote_start(self._offset)
        await self._rig.settings.publish(record, leader_epoch)


async def test_h02_a_start_that_another_cause_raised_meanwhile_is_high_enough(rig: Rig) -> None:
    rig.remote_start(120)
    assert await raised(rig, 200, settings=Overtaken(rig, 300)) == 300


async def test_h05_a_start_of_an_older_epoch_is_refused_where_none_is_as_high(rig: Rig) -> None:
    rig.remote_start(120)
    rig.broker.elect(1, 7)
    rig.remote_start(130)
    rig.broker.elect(1, 6)
    with pytest.raises(Fenced, match="older"):
        await raised(rig, 200)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 130


async def test_a_start_whose_line_cannot_be_written_stays(rig: Rig) -> None:
    rig.remote_start(120)

    def full() -> None:
        raise Unavailable("no space left")

    rig.audit.before_write = full
    with pytest.raises(Unavailable, match="no space left"):
        await raised(rig, 150)
    assert rig.settings.view.remote_log_start(PARTITION.key) == 120


@pytest.mark.parametrize("ends_at", [1, 2], ids=["after the barrier", "before the record"])
async def test_h02_a_start_stays_where_its_reason_has_ended(rig: Rig, ends_at: int) -> None:
    rig.remote_start(120)
    rig.settings.lags = True
    rig.remote_start(130)
    seen: list[int | None] = []

    async def check() -> None:
        seen.append(rig.settings.view.remote_log_start(PARTITION.key))
        if len(seen) == ends_at:
            raise Fenced("the reason has ended")

    with pytest.raises(Fenced, match="has ended"):
        await raised(rig, 150, check=check)
    assert seen == [130] * ends_at
    assert rig.settings.view.remote_log_start(PARTITION.key) == 130
