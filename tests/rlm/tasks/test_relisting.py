"""Partitions are listed again some at once, or a store as a whole, and it is shown how far."""

from collections.abc import AsyncIterator, Sequence, Set
from pathlib import Path

import pytest

from kip405.contracts import StoredObject
from kip405.errors import Unavailable
from kip405.ids import TopicIdPartition
from rlm.download.sources import StoreSource
from rlm.remote_log.attached import AttachedLog
from rlm.tasks.attachment import Attachment, Choices
from rlm.tasks.settled_listing import Identity, Relisting, identity_of
from rlm.tasks.store_survey import SurveyProgress
from rsm_plugins.layout.keys import TOPIC_CUT
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import log_of
from tests.rlm.api.attached_site import RECORD
from tests.rlm.download.stored import put


class Recorded(MemoryStore):
    """Partitions with one segment each, which lies above the remote log start. `asked`: what was
    listed, None = the whole store.
    """

    def __init__(self, folder: Path, partitions: int) -> None:
        super().__init__(CLUSTER_ID, STORE_ID)
        self.rig = Rig(folder)
        self.objects = self.rig.store.objects
        self.partitions = [_partition(number) for number in range(partitions)]
        self.asked: list[int | None] = []
        for one in self.partitions:
            put(self.rig, 1 + one.partition, log_of(100, [100]), {0: 100}, one)

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        self.asked.append(None if partition is None else partition.partition)
        async for one in super().list_objects(cluster_id, partition):
            yield one


def _partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id=PARTITION.topic_id, topic=TOPIC, partition=number)


async def _attached(store: Recorded, reports: list[SurveyProgress]) -> int:
    log = AttachedLog()
    attachment = Attachment(
        cluster_id=CLUSTER_ID,
        log=log,
        choices=Choices(),
        report=lambda _, progress: reports.append(progress),
    )
    await attachment.read({STORE_ID: store}, [RECORD])
    return len(log.state.ledgers)


async def _downloaded(store: Recorded, reports: list[SurveyProgress]) -> int:
    return len(await StoreSource(store, threads=THREADS, report=reports.append).plans(TOPIC, None))


def _relisting(
    store: Recorded, *, objects: int = 1, listed: Set[Identity] = frozenset()
) -> Relisting:
    return Relisting(
        store=store,
        cluster_id=CLUSTER_ID,
        listed=listed,
        objects=objects,
        report=lambda *_: None,
    )


@pytest.mark.parametrize("read", [_attached, _downloaded])
@pytest.mark.parametrize(
    ("partitions", "listed"),
    [(3, [0, 1, 2]), (8, range(8)), (9, [None])],
    ids=["some", "as many as are as fast", "all at once"],
)
async def test_partitions_with_gaps_are_listed_in_the_faster_way_and_counted(
    tmp_path: Path, read: object, partitions: int, listed: Sequence[int | None]
) -> None:
    """A start with ten thousand of them took as many requests and more, and showed nothing."""
    store, reports = Recorded(tmp_path, partitions), list[SurveyProgress]()
    assert await read(store, reports) == partitions  # type: ignore[operator] # one of two functions
    assert [*store.asked[:1], *sorted(store.asked[1:], key=str)] == [None, *listed]
    again = [one for one in reports if one.partitions is not None]
    assert {one.partitions for one in again} == {partitions}
    assert again[0].text == f"0 of {partitions} partitions are listed again"
    if partitions == 9:
        assert [one.partitions_listed for one in again] == list(range(9))


async def test_a_large_store_is_not_listed_as_a_whole_for_some_partitions(tmp_path: Path) -> None:
    store = Recorded(tmp_path, 9)
    await _relisting(store, objects=999).once(store.partitions)
    await _relisting(store, objects=1_000).once(store.partitions)
    assert store.asked == [None, *range(9)]


async def test_h15_what_a_listing_of_the_whole_store_adds_is_of_these_partitions_alone(
    tmp_path: Path,
) -> None:
    """Of others it may have half of an import."""
    store = Recorded(tmp_path, 20)
    added = await _relisting(store).once(store.partitions[:9])
    assert added.keys() == {one.key for one in store.partitions[:9]}
    assert store.asked == [None]


async def test_h04_a_partition_whose_name_is_cut_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """Its folder may have a prefix that follows from the whole name."""
    store = Recorded(tmp_path, 0)
    whole, cut = (
        TopicIdPartition(topic_id=PARTITION.topic_id, topic="t" * size, partition=0)
        for size in (TOPIC_CUT + 9, TOPIC_CUT)
    )
    put(store.rig, 1, log_of(100, [100]), {0: 100}, whole)
    assert (await _relisting(store).once([cut])).keys() == {whole.key}
    assert store.asked == [None]


async def test_h04_both_listings_without_anything_new_are_of_all_that_had_nothing_new(
    tmp_path: Path,
) -> None:
    store = Recorded(tmp_path, 3)
    known = await _relisting(store).once(store.partitions[1:])
    listed = {identity_of(parsed) for ((_, parsed),) in known.values()}
    store.asked.clear()
    relisting = _relisting(store, listed=listed)
    added = await relisting.settling(store.partitions)
    assert added.keys() == {store.partitions[0].key}
    assert store.asked == [0, 1, 2, 1, 2]


async def test_a_store_that_is_away_while_it_is_listed_again_is_an_error(tmp_path: Path) -> None:
    class Away(Recorded):
        async def list_objects(
            self, cluster_id: str, partition: TopicIdPartition | None = None
        ) -> AsyncIterator[StoredObject]:
            if self.asked:
                raise Unavailable("the store is away")
            async for one in super().list_objects(cluster_id, partition):
                yield one

    for partitions in (3, 9):
        with pytest.raises(Unavailable):
            await _downloaded(Away(tmp_path / str(partitions), partitions), [])
