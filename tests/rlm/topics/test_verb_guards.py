"""Guards of the topic verbs, one at a time: what is kept of a fact, whose topic is altered, and
which starts may move (H2, H14, H39).
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.broker.answers import PartitionDescription, TopicConfigValue, TopicDescription
from rlm.topics import rules
from rlm.topics.partition_records import Freezes, Starts
from rlm.topics.ports import NotLeader
from rlm.topics.rules import RetentionOptions
from rlm.topics.takeover import is_taken_over
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import SettingsRecord, StartRecord, TopicRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.ledger import PARTITION, MemorySettings, metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.world import Cluster, ServiceUnderTest

TIER = EnableOptions(trim=True)
SHORTER = EnableOptions(retention=RetentionOptions(local_retention_ms=50))
ANOTHER_ID = Uuid(b"\x09" * 16)


async def enabled(cluster: Cluster) -> ServiceUnderTest:
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    return service


def record_of(service: ServiceUnderTest) -> TopicRecord:
    found = service.cluster.record()
    assert found is not None
    return found


async def test_a_change_of_retention_keeps_mode_and_trim() -> None:
    service = await enabled(Cluster())
    await service.verbs.enable(TOPIC, SHORTER)
    assert (record_of(service).mode, record_of(service).trim) == ("tier", True)
    await service.verbs.trim_off(TOPIC, giveback=False)
    await service.verbs.enable(TOPIC, SHORTER)
    assert (record_of(service).mode, record_of(service).trim) == ("tier", False)


async def test_a_trim_from_before_a_disable_is_not_taken_up_again() -> None:
    service = await enabled(Cluster())
    kept = replace(record_of(service), state="kept", trim=True, extra={"later": 1})
    await service.settings.publish(kept, service.cluster.epoch)
    await service.verbs.enable(TOPIC, EnableOptions())
    assert (record_of(service).state, record_of(service).trim) == ("enabled", False)
    assert record_of(service).extra == {"later": 1}


async def test_disabling_ends_the_trim() -> None:
    service = await enabled(Cluster())
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    assert (record_of(service).state, record_of(service).trim) == ("kept", False)
    assert not is_taken_over(replace(record_of(service), mode="tier"))


async def test_a_topic_that_is_being_deleted_is_not_enabled() -> None:
    service = await enabled(Cluster())
    deleting = replace(record_of(service), state="deleting")
    await service.settings.publish(deleting, service.cluster.epoch)
    with pytest.raises(Fenced, match="is being deleted"):
        await service.verbs.enable(TOPIC, TIER)


async def test_h02_what_ends_at_the_remote_start_holds_no_disable_up() -> None:
    cluster = Cluster(log_starts={0: 100, 1: 0})
    service = await enabled(cluster)
    service.ledger.copied(metadata(1, 0, 100, {0: 0}))
    cluster.log_starts[0] = 200
    await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert record_of(service).state == "kept"


async def test_h14_a_topic_that_another_leads_by_now_is_not_altered() -> None:
    """The fact was written, and the service died before it altered anything."""
    cluster = Cluster()
    service = await enabled(cluster)
    cluster.configs[TOPIC].clear()
    half_done = replace(
        record_of(service), originals={"retention.ms": None, "retention.bytes": None}
    )
    await service.settings.publish(half_done, cluster.epoch)
    cluster.alters.clear()
    cluster.elect(2)
    with pytest.raises(NotLeader):
        await service.settler.settle(TOPIC, TOPIC_ID)
    assert cluster.alters == []


async def test_h14_originals_are_given_back_by_who_leads_now_only() -> None:
    """The fact says so already, and the service died before it altered anything."""
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    service = await enabled(cluster)
    given_back = replace(record_of(service), mode="copy", trim=False)
    await service.settings.publish(given_back, cluster.epoch)
    cluster.alters.clear()
    cluster.elect(2)
    with pytest.raises(NotLeader):
        await service.settler.settle(TOPIC, TOPIC_ID)
    assert cluster.alters == []


async def test_h39_a_topic_recreated_is_neither_altered_nor_watched() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    await service.repair()
    cluster.recreate(ANOTHER_ID)
    cluster.alters.clear()
    with pytest.raises(Unavailable, match="recreated"):
        await service.settler.settle(TOPIC, TOPIC_ID)
    await service.repair()
    assert cluster.alters == []
    assert not service.keeper.alarms


async def test_h14_a_change_is_done_when_our_broker_shows_it() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    plain, stale = service.broker.topic_config, 0

    async def late(topic: str) -> Mapping[str, TopicConfigValue]:
        """Two answers behind after an alter."""
        nonlocal stale
        found = await plain(topic)
        if cluster.alters and stale < 2:
            stale += 1
            return {name: replace(one, is_topic_level=False) for name, one in found.items()}
        return found

    service.broker.topic_config = late  # type: ignore[method-assign]
    await service.verbs.enable(TOPIC, TIER)
    assert len(cluster.alters) == 1


@pytest.mark.parametrize("name", [LEDGER_TOPIC, SETTINGS_TOPIC])
def test_our_own_topics_are_not_enabled(name: str) -> None:
    topic = TopicDescription(name=name, topic_id=TOPIC_ID, internal=False, partitions={})
    config = {"cleanup.policy": TopicConfigValue(value="delete", is_topic_level=True)}
    with pytest.raises(Invalid, match="this service's own"):
        rules.refuse(topic, config)


async def test_a_freeze_stops_the_sweep_too_and_any_service_ends_it() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    freezes, others = (
        Freezes(settings=one.settings, broker=one.broker, barrier_deadline_ms=1_000)
        for one in (service, ServiceUnderTest(cluster, node_id=2))
    )
    await freezes.freeze("", by="ann", why="x")
    assert service.settings.view.stopped_by(TOPIC_ID, "sweep")
    await others.unfreeze("")
    await service.settings.barrier(1_000)
    assert not service.settings.view.stopped_by(TOPIC_ID, "sweep")


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


async def test_h02_a_start_that_was_refused_counts_only_where_somebody_was_faster() -> None:
    partition = PartitionDescription(partition=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    topic = TopicDescription(
        name=TOPIC, topic_id=TOPIC_ID, internal=False, partitions={0: partition}
    )
    with pytest.raises(Fenced, match="overtaken"):
        await Starts(settings=Refusing(None), offsets=Offsets()).ensure(topic)
    assert PartitionKey(TOPIC_ID, 0) == PARTITION.key
    assert await Starts(settings=Refusing(start(5)), offsets=Offsets()).ensure(topic) == 1
