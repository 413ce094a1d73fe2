"""A store alone is read by what its segments prove of the history, as an attached reader does (H4).

Leader 1 began at 150 by an unclean election. Its first segment, [150, 200), was copied, and has
been lost since: what the copy of leader 0 has from 150 on is dead, and only the lineage that is
stored with the next segment shows that (H8).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.segments import SegmentLocator
from rlm.download.plan import PartitionPlan
from rlm.download.sources import StoreSource
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.rig import Rig
from tests.builders.store import MemoryStore
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch
from tests.rlm.cli.invoking import rlm
from tests.rlm.download.stored import Work, put
from tests.rlm.download.test_interrupt import as_tree

ACCEPTED = ("orders-0",)


def log(first: int, end: int, *, epoch: int) -> bytes:
    return b"".join(
        batch(base, 10, epoch=epoch, value=b"e%d" % epoch) for base in range(first, end, 10)
    )


class CountingStore(MemoryStore):
    """Counts reads of indexes, and fails them as it is `broken`."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(CLUSTER_ID)
        self.objects = rig.store.objects
        self.index_reads: Counter[int] = Counter()
        self.broken: dict[int, Exception] = {}

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        self.index_reads[locator.start_offset] += 1
        if locator.start_offset in self.broken:
            raise self.broken[locator.start_offset]
        return await super().fetch_indexes(locator)


def dead_tail(path: Path) -> CountingStore:
    rig = Rig(path)
    put(rig, 1, log(0, 200, epoch=0), {0: 0})
    put(rig, 2, log(200, 300, epoch=1), {1: 200}, stored={0: 0, 1: 150})
    put(rig, 3, log(300, 400, epoch=1), {1: 300}, stored={0: 0, 1: 150})
    return CountingStore(rig)


async def plan(store: MemoryStore, accepted: Sequence[str] = ()) -> PartitionPlan:
    (found,) = await StoreSource(store, threads=THREADS, accepted=accepted).plans(TOPIC, None)
    return found


def ranges(found: PartitionPlan) -> list[tuple[int, int]]:
    return [(one.start_offset, one.next_offset) for one in found.pieces]


async def test_h04_a_dead_tail_that_no_other_copy_contradicts_is_refused(tmp_path: Path) -> None:
    store = dead_tail(tmp_path)
    with pytest.raises(Invalid, match=r"orders-0: offsets 150 to 199 .* epochs 0, 1 contradict"):
        await plan(store)
    assert store.index_reads == {300: 1}


@pytest.mark.parametrize("name", ["orders-0", f"{PARTITION.topic_id}-0"])
async def test_h04_a_dead_tail_is_left_out_once_the_history_is_accepted(
    tmp_path: Path, name: str
) -> None:
    found = await plan(dead_tail(tmp_path), [name])
    assert ranges(found) == [(0, 150), (200, 300), (300, 400)]
    assert [(one.epoch, one.start_offset) for one in found.leader_epochs.entries] == [
        (0, 0),
        (1, 150),
    ]


async def test_h04_a_download_has_no_dead_record(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 200, epoch=0), {0: 0})
    put(rig, 2, log(200, 300, epoch=1), {1: 200}, stored={0: 0, 1: 150})
    with pytest.raises(Invalid, match="150 to 199 are doubtful"):
        await Work(rig, tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
    work = Work(rig, tmp_path / "out", ACCEPTED)
    await work.run()
    found = work.files()
    logs = b"".join(found[name] for name in sorted(found) if name.endswith(".log"))
    assert logs == log(0, 150, epoch=0) + log(200, 300, epoch=1)


async def test_copies_that_fit_the_stored_history_are_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 150, epoch=0), {0: 0})
    both = log(100, 150, epoch=0) + log(150, 200, epoch=1)  # by a leader with other segments
    put(rig, 2, both, {0: 100, 1: 150}, stored={0: 0, 1: 150})
    put(rig, 3, log(200, 300, epoch=2), {2: 200}, stored={0: 0, 1: 150, 2: 200})
    store = CountingStore(rig)
    assert ranges(await plan(store)) == [(0, 150), (150, 200), (200, 300)]
    assert store.index_reads == {200: 1}


async def test_of_one_epoch_nothing_more_is_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    put(rig, 1, log(0, 100, epoch=3), {3: 0})
    put(rig, 2, log(50, 200, epoch=3), {3: 50}, stored={3: 0})
    store = CountingStore(rig)
    assert ranges(await plan(store)) == [(0, 100), (100, 200)]
    assert not store.index_reads


async def test_an_older_segment_of_the_epoch_has_the_history_too(tmp_path: Path) -> None:
    store = dead_tail(tmp_path)
    store.broken[300] = NotFound("it is gone")
    with pytest.raises(Invalid, match="150 to 199 are doubtful"):
        await plan(store)


async def test_h04_a_history_that_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    store = dead_tail(tmp_path)
    store.broken = {200: NotFound("it is gone"), 300: NotFound("it is gone")}
    with pytest.raises(Invalid, match="offsets 0 to 199 are doubtful: the indexes of the newest"):
        await plan(store)
    assert ranges(await plan(store, ACCEPTED)) == [(0, 200), (200, 300), (300, 400)]
    store.broken = {300: Unavailable("come back")}
    with pytest.raises(Invalid, match="150 to 199"):
        await plan(store)
    store.broken = {200: Unavailable("come back"), 300: Unavailable("come back")}
    with pytest.raises(Unavailable, match="come back"):
        await plan(store, ACCEPTED)


async def test_a_choice_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="--accept-history: orders-9 is not among"):
        await plan(dead_tail(tmp_path), ["orders-9"])


async def test_the_command_names_the_offsets_and_the_option(tmp_path: Path) -> None:
    rig, out = Rig(tmp_path), tmp_path / "out"
    put(rig, 1, log(0, 200, epoch=0), {0: 0})
    put(rig, 2, log(200, 300, epoch=1), {1: 200}, stored={0: 0, 1: 150})
    asked = ("download", TOPIC, "--dir", str(out))
    wanted = (*asked, "--plugin-config", str(as_tree(rig, tmp_path / "store")))
    refused = await rlm(*wanted)
    assert refused.exit_code == 2
    assert "orders-0: offsets 150 to 199 are doubtful" in refused.stderr
    assert "--accept-history orders-0" in refused.stderr
    assert not out.exists()
    done = await rlm(*wanted, "--accept-history", "orders-0", "--json")
    assert done.exit_code == 0, done.output
    assert len(list(out.glob("orders-0/*.log"))) == 2
    refused = await rlm(*asked, "--accept-history", "orders-0")
    assert refused.exit_code == 2
    assert "--accept-history goes with --plugin" in refused.stderr
