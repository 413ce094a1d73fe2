"""What of present logs could not be copied, by the files of this broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kip405.errors import Fenced
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.log_dir.scanner import LogDirs, PartitionLog
from rlm.topics.local_logs import DiskLogs
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID, LogDir, PartitionDir
from tests.builders.threads import THREADS


class Site:
    """Partition 0 with [0, 100), [100, 200) closed and [200, 250) active; perhaps others."""

    def __init__(self, path: Path) -> None:
        self.log_dir = LogDir(path)
        self.disk = self.partition(0)
        self.clock, self.scan_ms = ManualClock(), 0
        self.on_scan: Iterator[Callable[[], object]] = iter(())
        self.log_dirs = LogDirs([str(path)])
        self.logs = DiskLogs(self.scan, THREADS, self.clock)
        self.log_dir.recovery_point(TOPIC, 0, 250)

    def scan(self, topic: str, partition: int) -> PartitionLog:
        self.clock.advance(self.scan_ms)
        next(self.on_scan, lambda: None)()
        return self.log_dirs.scan(topic, partition)

    def partition(self, number: int) -> PartitionDir:
        made = self.log_dir.partition(partition=number)
        made.segment(0, 100)
        made.segment(100, 200)
        made.active(200, 250)
        return made

    async def check(self, *partitions: int, force: bool = False) -> tuple[str, ...]:
        rows = {
            number: PartitionDescription(
                partition=number, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)
            )
            for number in partitions or (0,)
        }
        topic = TopicDescription(name=TOPIC, topic_id=TOPIC_ID, internal=False, partitions=rows)
        return await self.logs.check(topic, force=force)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "data")


async def test_a_log_in_order_is_no_news(site: Site) -> None:
    assert await site.check() == ()


async def test_of_epochs_below_the_checkpoint_nothing_is_known(site: Site) -> None:
    """As after a DeleteRecords into the middle of a segment (H8)."""
    site.disk.epochs({0: 150})
    assert await site.check() == ()


async def test_what_the_cleaner_left_empty_is_in_order(site: Site) -> None:
    site.disk.empty(100, 200)
    site.log_dir.cleaned_up_to(TOPIC, 0, 200)
    assert await site.check() == ()


async def test_a_segment_that_may_have_lost_its_bytes_is_named(site: Site) -> None:
    site.disk.empty(100, 200)
    with pytest.raises(Fenced, match=r"orders-0 at 100: .*100.log has 0 bytes: the log cleaner"):
        await site.check()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda disk: disk.file(100, ".log").write_bytes(bytes(64)), "at position 0"),
        (lambda disk: disk.epochs({0: 0, 3: 100}), "of epoch 0, the checkpoint says 3"),
        (
            lambda disk: disk.file(100, ".log").write_bytes(disk.file(0, ".log").read_bytes()),
            "first batch is at offset 0",
        ),
    ],
)
async def test_a_segment_whose_beginning_is_not_what_it_should_be_is_named(
    site: Site, damage: object, why: str
) -> None:
    assert callable(damage)
    damage(site.disk)
    with pytest.raises(Fenced, match=why) as caught:
        await site.check()
    assert "orders-0 at 100" in str(caught.value)
    assert "--force" in str(caught.value)
    (warning,) = await site.check(force=True)
    assert why in warning


async def test_every_partition_is_looked_at_and_what_is_not_here_is_said(site: Site) -> None:
    site.partition(1).file(0, ".log").write_bytes(bytes(64))
    with pytest.raises(Fenced, match="orders-1 at 0"):
        await site.check(0, 1, 2)
    elsewhere, damaged = await site.check(0, 1, 2, force=True)
    assert "no replica of orders-2:" in elsewhere
    assert "orders-0" not in damaged
    assert await site.check(0, 2) == (elsewhere,)


async def test_a_partition_that_cannot_be_read_is_named(site: Site) -> None:
    (site.disk.path / "leader-epoch-checkpoint").write_text("what is this")
    with pytest.raises(Fenced, match="orders-0: orders-0 cannot be read"):
        await site.check()


async def test_a_partition_that_the_broker_is_about_to_make_is_waited_for(site: Site) -> None:
    """Its directory comes first, and its first segment a moment later."""
    directory = site.log_dir.path / f"{TOPIC}-1"
    directory.mkdir()
    with pytest.raises(Fenced, match=r"orders-1: .*-1 has no segment"):
        await site.check(1)

    def make() -> None:
        directory.rmdir()
        site.partition(1)

    site.on_scan = iter([lambda: None, make])
    assert await site.check(1) == ()


async def test_a_topic_that_takes_too_long_to_examine_is_not_refused_for_that(site: Site) -> None:
    """The caller would be gone before the answer, and nobody could ever enable it."""
    for number in (1, 2, 3):
        site.partition(number)
    site.scan_ms = 6_000
    (warning,) = await site.check(0, 1, 2, 3)
    assert warning.startswith("there was no time to check orders-2, orders-3: whether all of it")
    (site.disk.path / "leader-epoch-checkpoint").write_text("what is this")
    with pytest.raises(Fenced, match="orders-0: orders-0 cannot be read"):
        await site.check(0, 1, 2, 3)
