"""No topic is enabled where its start may have been lost, and others are (H1, H2, H10)."""

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import PartitionKey
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.topics.partition_records import Starts
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import SettingsRecord, StartRecord, TopicRecord
from tests.builders.ledger import PARTITION, MemoryLedger, MemorySettings, metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.world import Cluster, ServiceUnderTest


async def enabled(cluster: Cluster) -> ServiceUnderTest:
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    return service


async def test_h02_no_topic_is_enabled_again_where_its_start_was_lost() -> None:
    """The brokers' log starts are our own trims by now (H1)."""
    cluster = Cluster()
    await enabled(cluster)
    before = cluster.record()
    start_key = StartRecord(partition=PARTITION.key, remote_log_start_offset=0, cause="").key
    cluster.records = [one for one in cluster.records if one[0] != start_key.encode()]
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    service.ledger.copied(metadata(1, 0, 100, {0: 0}))
    with pytest.raises(Unavailable, match=r"1 remote segments and no remote log start.*adopt-log"):
        await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert cluster.record() == before
    assert service.start_of(0) is None


async def test_h10_what_arrived_late_of_a_remote_log_that_has_ended_keeps_no_topic_disabled() -> (
    None
):
    """The simulator's seed 1101946: the copy of a zombie, after `disable --delete`."""
    cluster = Cluster()
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    service.ledger.copied(metadata(1, 0, 100, {0: 0}))
    await service.verbs.enable(TOPIC, EnableOptions())
    assert service.start_of(0) == 100


async def test_a_topic_is_enabled_while_topics_cannot_be_verified_but_a_barrier_passes() -> None:
    """As for some seconds after a restart of the broker."""
    service = ServiceUnderTest(Cluster())
    service.settings.unanswered = "connection refused"
    assert service.settings.problem is not None
    await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert service.settings.view.remote_log_start(PARTITION.key) is not None


async def test_h02_no_topic_is_enabled_where_its_start_cannot_be_read() -> None:
    cluster = Cluster()
    cluster.append(start(0).key.encode(), b'{"v":2}', (), 0)
    with pytest.raises(Unavailable, match="v=2 is not known"):
        await ServiceUnderTest(cluster).verbs.enable(TOPIC, EnableOptions())
    assert cluster.record() is None


async def test_h14_a_topic_record_that_cannot_be_read_is_not_replaced() -> None:
    """It has the originals; the topic's present retention is ours."""
    cluster = Cluster()
    await enabled(cluster)
    key = f"{TopicRecord.KIND}/{TOPIC_ID}"
    before = cluster.record()
    assert before is not None
    assert before.key == key
    cluster.records = [one for one in cluster.records if one[0] != key.encode()]
    cluster.append(key.encode(), b'{"v":2}', (), 0)
    count = len(cluster.records)
    service = ServiceUnderTest(cluster)
    with pytest.raises(Fenced, match="v=2 is not known"):
        await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert len(cluster.records) == count
    assert service.settings.problem is not None


def start(offset: int) -> StartRecord:
    return StartRecord(partition=PARTITION.key, remote_log_start_offset=offset, cause="test")


class Refusing(MemorySettings):
    """Publishes nothing; `faster` is what somebody else wrote just before."""

    def __init__(self, faster: StartRecord | None) -> None:
        super().__init__()
        self._faster = faster

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        raise Fenced("overtaken")

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = -1, seen: int | None = None
    ) -> None:
        if self._faster is not None:
            self.write(self._faster, epoch=0)
        raise Fenced("overtaken")


class Offsets:
    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        return 7


def starts_of(settings: Refusing) -> Starts:
    return Starts(
        settings=settings, ledger=MemoryLedger(), offsets=Offsets(), barrier_deadline_ms=1_000
    )


async def test_h02_a_start_that_was_refused_counts_only_where_somebody_was_faster() -> None:
    partition = PartitionDescription(partition=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    topic = TopicDescription(
        name=TOPIC, topic_id=TOPIC_ID, internal=False, partitions={0: partition}
    )
    with pytest.raises(Fenced, match="overtaken"):
        await starts_of(Refusing(None)).ensure(topic)
    assert PartitionKey(TOPIC_ID, 0) == PARTITION.key
    assert await starts_of(Refusing(start(5))).ensure(topic) == 1
