"""H14: what a bounded retention deletes before it is copied is copied from files that are open."""

import gc
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kip405.contracts import IndexType
from kip405.errors import Corrupt, Fenced, Unavailable
from kip405.indexes import AbortedTransaction, IndexesObject, encode_aborted
from kip405.open_files import raise_open_files_limit
from rlm.broker.answers import TopicConfigValue
from rlm.broker.leadership import LedPartition
from rlm.log_dir.held_segments import USEFUL_OPEN_FILES, SegmentFiles
from rlm.plans.retention_contests import CONTEST_MS
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.bounded_retention import BoundedRetentionWatch, TieredPartition
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.segment_holds import SegmentHolds
from rsm_plugins.layout.manifest import Manifest
from tests.builders.ledger import FINISHED, PARTITION
from tests.builders.rig import Rig

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.remote_start(0)
    made.write_log(0, 100, 200, 300, end=350)
    return made


def renamed(rig: Rig, *bases: int) -> None:
    """As the broker marks segments whose retention has ended."""
    for base in bases:
        for suffix in SUFFIXES:
            path = rig.disk.file(base, suffix)
            if path.exists():
                path.rename(f"{path}.deleted")


def deleted(rig: Rig, *bases: int) -> None:
    """And some time later; the log begins behind them, and the epoch file is cut."""
    renamed(rig, *bases)
    for base in bases:
        for suffix in SUFFIXES:
            Path(f"{rig.disk.file(base, suffix)}.deleted").unlink(missing_ok=True)
    rig.broker.log_start_offset = max(bases) + 100
    epoch = rig.broker.partition.leader_epoch
    rig.disk.epochs({epoch: rig.broker.log_start_offset})


async def hold(rig: Rig, snapshot: PartitionSnapshot | None = None) -> int:
    snapshot = snapshot or await rig.snapshots.take(rig.led)
    return await rig.holds.hold(snapshot, {one.base_offset for one in rig.copy.uncopied(snapshot)})


def starts(rig: Rig) -> list[int]:
    return [one.metadata.start_offset for one in rig.ledger.view.in_state(FINISHED)]


def links(rig: Rig) -> list[str]:
    """Names of the held files."""
    folder = rig.log_dir.path.parent / "held"
    return sorted(path.name for path in folder.rglob("*") if path.is_symlink())


def open_files() -> int:
    gc.collect()  # what earlier tests have left open
    return len(os.listdir("/proc/self/fd"))


async def test_h14_what_the_broker_has_deleted_is_copied_from_the_open_files(rig: Rig) -> None:
    logs = [rig.disk.file(base, ".log").read_bytes() for base in (0, 100, 200)]
    before = open_files()
    assert await hold(rig) == 3
    deleted(rig, 0, 100)
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 100, 200]
    assert [rig.store.objects[name] for name in rig.names(".log")] == logs
    assert rig.copy.statuses[PARTITION.key].lag_segments == 0
    rig.holds.drop(PARTITION.key, {0, 100, 200})
    await rig.holds.close_dropped()
    assert (links(rig), list(rig.holds.keys)) == ([], [])
    assert open_files() == before


async def test_h14_what_is_not_copied_yet_counts_as_lag(rig: Rig) -> None:
    await hold(rig)
    deleted(rig, 0, 100)
    assert rig.copy.is_due(await rig.snapshots.take(rig.led))
    assert rig.copy.statuses[PARTITION.key].lag_segments == 3


async def test_h14_files_that_are_marked_as_deleted_are_opened_too(rig: Rig) -> None:
    snapshot = await rig.snapshots.take(rig.led)
    renamed(rig, 0, 100)
    assert await hold(rig, snapshot) == 3
    deleted(rig, 0, 100)
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 100, 200]


@pytest.mark.parametrize("how", ["gone", "another file", "cut", "without its index"])
async def test_h13_what_is_not_there_as_it_was_seen_is_not_held(rig: Rig, how: str) -> None:
    snapshot = await rig.snapshots.take(rig.led)
    path = rig.disk.file(100, ".log")
    if how == "gone":
        path.unlink()
    elif how == "another file":
        path.with_suffix(".copy").write_bytes(path.read_bytes())
        os.replace(path.with_suffix(".copy"), path)
    elif how == "cut":
        os.truncate(path, path.stat().st_size - 1)
    else:
        rig.disk.file(100, ".timeindex").unlink()
    before = open_files()
    assert await hold(rig, snapshot) == 1
    assert rig.holds.bases(PARTITION.key) == {200}
    rig.holds.forget(PARTITION.key)
    await rig.holds.close_dropped()
    assert open_files() == before


async def test_h09_the_aborted_transactions_of_a_deleted_segment_are_complete(
    tmp_path: Path,
) -> None:
    """The transaction of the first segment was aborted in the active one, which goes as well."""
    rig = Rig(tmp_path)
    rig.remote_start(0)
    rig.write_log(0, 100, 200, end=250)
    aborted = AbortedTransaction(producer_id=7, first_offset=50, last_offset=220)
    rig.disk.segment(200, 250, aborted=[(aborted, 250)])
    assert await hold(rig) == 2
    for suffix in SUFFIXES:  # the retention took everything; the log goes on behind it
        rig.disk.file(250, suffix).unlink(missing_ok=True)
    rig.disk.active(250, 260)
    deleted(rig, 0, 100, 200)
    rig.broker.log_start_offset = 250
    rig.broker.ends_at(260)
    await rig.copy.run(rig.led)
    assert starts(rig)[:2] == [0, 100]
    [first, *_] = rig.names(".indexes")
    section = IndexesObject.parse(rig.store.objects[first]).section(IndexType.ABORTED_TRANSACTIONS)
    assert section is not None
    assert bytes(section) == encode_aborted([aborted])


@pytest.mark.parametrize("ends_at", [350, 150])
async def test_h04_what_was_held_under_another_leader_epoch_is_let_go(
    rig: Rig, ends_at: int
) -> None:
    """The log may have been cut by an unclean election since, here at 150."""
    await hold(rig)
    deleted(rig, 0, 100)
    if ends_at == 150:
        for suffix in SUFFIXES:
            rig.disk.file(200, suffix).unlink(missing_ok=True)
            rig.disk.file(300, suffix).unlink(missing_ok=True)
        rig.broker.log_start_offset = 150
        rig.broker.log = b""
        rig.write_log(150, 260, end=300, epoch=1)
        rig.disk.epochs({})
        rig.begin_epoch(1, 150)
    else:
        rig.begin_epoch(1, 350)
    await rig.copy.run(rig.led)
    assert starts(rig) == [200 if ends_at == 350 else 150]
    assert list(rig.holds.keys) == []


async def test_h04_a_copy_from_open_files_ends_with_the_leader_epoch(rig: Rig) -> None:
    await hold(rig)
    deleted(rig, 0, 100)

    def elect(operation: str) -> None:
        if operation == "copied" and rig.broker.partition.leader_epoch == 0:
            rig.begin_epoch(1, 350)

    rig.store.before = elect
    with pytest.raises(Fenced):
        await rig.copy.run(rig.led)
    assert starts(rig) == []


async def test_g09_a_damaged_segment_does_not_hold_up_the_others(rig: Rig) -> None:
    path = rig.disk.file(0, ".log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    await hold(rig)
    deleted(rig, 0, 100)
    with pytest.raises(Corrupt):
        await rig.copy.run(rig.led)
    await rig.copy.run(rig.led)
    assert starts(rig) == [100, 200]


async def test_h13_what_lies_in_the_log_is_copied_from_there(rig: Rig) -> None:
    """A log that was moved to another directory may have other segment borders."""
    await hold(rig)
    for suffix in SUFFIXES:
        for base in (0, 100, 200):
            rig.disk.file(base, suffix).unlink(missing_ok=True)
    rig.disk.segment(0, 150)
    rig.disk.segment(150, 300)
    snapshot = await rig.snapshots.take(rig.led)
    assert rig.holds.missing(snapshot) == ()


async def test_h02_a_held_segment_below_the_remote_log_start_is_not_copied(rig: Rig) -> None:
    """Somebody deleted its records for good meanwhile (DeleteRecords)."""
    await hold(rig)
    deleted(rig, 0, 100)
    rig.remote_start(150)
    await rig.copy.run(rig.led)
    assert starts(rig) == [100, 200]
    manifests = [Manifest.parse(rig.store.objects[name]) for name in rig.names(".rsm-manifest")]
    assert {one.remote_log_start_offset for one in manifests} == {150}


async def test_h13_links_of_a_former_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "held" / "1").mkdir(parents=True)
    (tmp_path / "held" / "1" / f"{0:020d}.log").symlink_to("/proc/1/fd/3")
    rig = Rig(tmp_path)
    assert links(rig) == []


class FewFiles(SegmentFiles):
    most_segments = 2


class Watched:
    """The watch over a rig, with the snapshots that tasks have taken; it requests copy tasks."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.known: PartitionSnapshot | None = None
        self.rows: tuple[LedPartition, ...] = (rig.led,)
        self.requested: list[LedPartition] = []
        self.answers = self.reads = True
        self.given_back = False
        self.has_space = False
        self.gives_way: Callable[[PartitionSnapshot], bool] = lambda _: False
        self.watch = BoundedRetentionWatch(
            holds=rig.holds,
            broker=self,
            snapshots=self,
            tiered=lambda: [
                TieredPartition(led=row, given_back=self.given_back) for row in self.rows
            ],
            has_space=lambda directory: directory == str(rig.disk.path) and self.has_space,
            gives_way=lambda snapshot: self.gives_way(snapshot),
            uncopied=rig.copy.uncopied,
            request=self.requested.append,
            clock=rig.clock,
            interval_ms=1_000,
        )

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]:
        if not self.answers:
            raise Unavailable("no answer")
        return await self.rig.broker.topic_config(topic, names)

    def of(self, led: LedPartition) -> PartitionSnapshot | None:
        return self.known

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        if not self.reads:
            raise Unavailable("the ledger is away")
        self.known = await self.rig.snapshots.take(led)
        return self.known

    async def bases(self, bound: str | None = None) -> frozenset[int]:
        """What is held after a check."""
        if bound is not None:
            self.rig.broker.config["retention.ms"] = bound
        await self.watch.check()
        return self.rig.holds.bases(PARTITION.key)


async def test_h14_all_uncopied_segments_are_opened_at_once_when_the_retention_is_bounded(
    rig: Rig,
) -> None:
    watched = Watched(rig)
    assert await watched.bases() == set()
    assert await watched.bases("60000") == {0, 100, 200}
    assert watched.requested == [rig.led]
    assert await watched.bases() == {0, 100, 200}
    assert watched.requested == [rig.led], "once"


async def test_g10_the_oldest_are_held_and_no_more_than_the_limit(tmp_path: Path, rig: Rig) -> None:
    rig.holds = SegmentHolds(FewFiles(tmp_path / "few"), rig.threads.copies)
    watched = Watched(rig)
    assert await watched.bases("60000") == {0, 100}
    assert watched.watch.counts() == (2, 1)
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    await watched.take(rig.led)
    assert await watched.bases() == {100, 200}
    assert watched.watch.counts() == (2, 0)


async def test_g10_more_files_may_be_open_if_the_system_allows_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = SegmentFiles(tmp_path / "held")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert files.most_segments == 64
        raise_open_files_limit(USEFUL_OPEN_FILES)
        assert files.most_segments == min(2_000, hard // 16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_h14_a_folder_that_cannot_be_written_holds_nothing_and_leaves_no_file_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()

    def refuse(self: Path, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert await hold(rig) == 0
    assert open_files() == before


async def test_h14_the_last_snapshot_knows_what_is_deleted_already(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.take(rig.led)
    renamed(rig, 0, 100)
    assert await watched.bases("60000") == {0, 100, 200}


async def test_h14_without_a_bound_only_what_the_broker_has_no_more_stays_held(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.bases("60000")
    deleted(rig, 0)
    await watched.take(rig.led)
    assert await watched.bases("-1") == {0, 100, 200}, "it may be bounded again at any moment"
    rig.clock.advance(CONTEST_MS + 1)
    assert await watched.bases() == {0}
    await rig.copy.run(rig.led)
    await watched.take(rig.led)
    assert await watched.bases() == set()
    assert links(rig) == []


async def test_h14_what_is_copied_is_let_go_while_the_bound_stays(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.bases("60000")
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    await watched.take(rig.led)
    assert await watched.bases() == {100, 200}


async def test_h38_while_the_broker_does_not_answer_what_is_held_stays_held(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.bases("60000")
    watched.answers = False
    assert await watched.bases() == {0, 100, 200}
    rig.clock.advance(CONTEST_MS + 1)
    assert await watched.bases() == {0, 100, 200}


async def test_a_topic_that_is_not_in_mode_tier_any_more_holds_nothing(rig: Rig) -> None:
    watched = Watched(rig)
    await watched.bases("60000")
    watched.rows = ()
    assert await watched.bases() == set()
    assert links(rig) == []


async def test_h18_what_is_given_back_is_held_where_the_disk_has_space(rig: Rig) -> None:
    """The limit acts on all partitions of the topic, and only one disk is nearly full."""
    watched = Watched(rig)
    watched.given_back = True
    await watched.take(rig.led)
    assert await watched.bases("60000") == set(), "its disk must get space"
    watched.has_space = True
    assert await watched.bases() == {0, 100, 200}
    deleted(rig, 0, 100)
    await watched.take(rig.led)
    assert await watched.bases() == {0, 100, 200}
    watched.has_space = False
    assert await watched.bases() == set()
    assert links(rig) == []


async def test_h18_what_is_given_back_is_not_held_where_nobody_knows_its_disk(rig: Rig) -> None:
    watched = Watched(rig)
    watched.given_back = watched.has_space = True
    assert await watched.bases("60000") == set()


async def test_h15_what_is_held_is_no_hole_until_it_is_let_go(rig: Rig) -> None:
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    await hold(rig)
    deleted(rig, 0, 100)
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    assert rig.settings.view.holes(PARTITION.key) == ()
    rig.holds.drop(PARTITION.key, {100})
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    [hole] = rig.settings.view.holes(PARTITION.key)
    assert (hole.start, hole.end) == (100, 200)
    await rig.copy.run(rig.led)
    assert starts(rig) == [0, 200]
