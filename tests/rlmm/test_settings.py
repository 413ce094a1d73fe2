"""Settings records published and removed, where records land late or the writer knew less."""

from dataclasses import replace

import pytest

from kip405.errors import Fenced
from kip405.ids import PartitionKey, TopicPartition
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.settings import Settings
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import (
    ClusterRecord,
    CopyLimitRecord,
    DivergenceRecord,
    FreezeRecord,
    HistoryRecord,
    ServiceRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    TopicRecord,
)
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.clock import ManualClock
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlm.plans.views import lineage
from tests.rlmm.builders import KEY, TOPIC_ID, uuid

FREEZE = FreezeRecord(topic_id=None, stopped=("trim",), by="ada", why="audit")
LEADER_EPOCH = 5
PARTITION = TopicPartition(SETTINGS_TOPIC, 0)


class Process:
    """One service's settings; several of them share a log."""

    def __init__(self, topics: FakeTopics, node_id: int = 1) -> None:
        clock = ManualClock()
        self.log = FakeMetadataLog(topics)
        self.settings = Settings(
            log=self.log,
            node_id=node_id,
            writer=uuid(node_id),
            now_ms=clock.now_ms,
            monotonic_ms=clock.monotonic_ms,
            publish_timeout_ms=1_000,
        )
        self.log.go_live()

    def topic(self) -> TopicRecord | None:
        self.log.read_all()
        return self.settings.view.topic(TOPIC_ID)

    def is_frozen(self) -> bool:
        self.log.read_all()
        return self.settings.view.stopped_by(TOPIC_ID, "trim") is not None

    async def lose(self, record: SettingsRecord, leader_epoch: int) -> None:
        """Publish with an outcome that stays unknown."""
        self.log.loses_acks = True
        with pytest.raises(OutcomeUnknown):
            await self.settings.publish(record, leader_epoch)
        self.log.loses_acks = False


def topic(*, trim: bool) -> TopicRecord:
    return TopicRecord(
        topic_id=TOPIC_ID,
        name="orders",
        mode="tier",
        state="enabled",
        trim=trim,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
    )


def written(record: SettingsRecord, leader_epoch: int) -> Record:
    """A record of an older version's service."""
    stamp = Stamp(node_id=3, leader_epoch=leader_epoch, writer=uuid(3), time_ms=0)
    key, value = encode_settings_record(record, stamp)
    return Record(topic_partition=PARTITION, key=key, value=value)


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics()


@pytest.fixture
def ours(topics: FakeTopics) -> Process:
    return Process(topics, 1)


@pytest.fixture
def other(topics: FakeTopics) -> Process:
    return Process(topics, 2)


async def test_h10_a_trim_on_that_lands_after_trim_off_does_not_count(
    ours: Process, other: Process
) -> None:
    await ours.settings.publish(topic(trim=False), LEADER_EPOCH)
    await ours.lose(topic(trim=True), LEADER_EPOCH)
    await ours.settings.barrier(1_000)
    await ours.settings.publish(topic(trim=False), LEADER_EPOCH)
    ours.log.land()
    for process in (ours, other):
        assert process.topic() == topic(trim=False)
    assert await ours.settings.reassert(KEY._replace(partition=0), LEADER_EPOCH) == 1
    assert Process(ours.log.topics).topic() == topic(trim=False)


async def test_h10_an_unfreeze_that_lands_after_a_freeze_does_not_count(
    ours: Process, other: Process
) -> None:
    await ours.settings.publish(FREEZE)
    ours.log.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await ours.settings.tombstone(FREEZE.key)
    ours.log.loses_acks = False
    await ours.settings.publish(FREEZE)
    ours.log.land()
    assert ours.is_frozen()
    assert other.is_frozen()
    assert await other.settings.reassert(KEY, LEADER_EPOCH) == 1
    ours.log.read_all()
    assert await ours.settings.reassert(KEY, LEADER_EPOCH) == 0
    assert ours.is_frozen()
    await ours.settings.tombstone(FREEZE.key)
    assert not ours.is_frozen()
    assert not other.is_frozen()


async def test_h10_the_removal_of_a_copy_limit_that_lands_after_a_new_one_does_not_count(
    ours: Process, other: Process
) -> None:
    limit = CopyLimitRecord(node_id=None, bytes_per_second=1 << 20, by="ada", decided_ms=1)
    raised = replace(limit, bytes_per_second=8 << 20)
    await ours.settings.publish(limit)
    ours.log.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await ours.settings.tombstone(limit.key)
    ours.log.loses_acks = False
    await ours.settings.publish(raised)
    ours.log.land()
    ours.log.read_all()
    assert ours.settings.view.copy_limit(1) == raised
    other.log.read_all()
    assert await other.settings.reassert(KEY, LEADER_EPOCH) == 1
    ours.log.read_all()
    assert await ours.settings.reassert(KEY, LEADER_EPOCH) == 0
    await ours.settings.tombstone(limit.key)
    other.log.read_all()
    assert other.settings.view.copy_limit(1) is None


async def test_h10_a_history_that_lands_after_a_newer_one_of_its_leader_does_not_count(
    ours: Process,
) -> None:
    thawed = HistoryRecord(partition=KEY, frozen=None, lineage=lineage({0: 0}))
    frozen = HistoryRecord(partition=KEY, frozen="diverged", lineage=lineage({0: 0, 2: 50}))
    await ours.lose(thawed, LEADER_EPOCH)
    await ours.settings.publish(frozen, LEADER_EPOCH)
    ours.log.land()
    ours.log.read_all()
    assert ours.settings.view.history(KEY) == frozen


async def test_an_old_leaders_tombstone_takes_no_newer_record_away(
    ours: Process, other: Process
) -> None:
    """It was paused before it sent; the fact it means is gone, another leader has written."""
    await ours.settings.publish(topic(trim=False), LEADER_EPOCH)
    ours.log.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await ours.settings.tombstone(topic(trim=False).key, LEADER_EPOCH)
    await other.settings.barrier(1_000)
    await other.settings.publish(topic(trim=True), LEADER_EPOCH + 1)
    ours.log.land()
    for process in (ours, other, Process(ours.log.topics)):
        assert process.topic() == topic(trim=True)
    ours.log.loses_acks = False
    with pytest.raises(Fenced, match="leader epoch 5 is older than 6"):
        await ours.settings.tombstone(topic(trim=True).key, LEADER_EPOCH)


async def test_a_tombstone_that_was_overtaken_is_fenced(ours: Process, topics: FakeTopics) -> None:
    await ours.settings.publish(topic(trim=False), LEADER_EPOCH)
    newer = written(topic(trim=True), LEADER_EPOCH)

    def overtake(_: Record) -> None:
        topics.append(newer)

    ours.log.before_append = overtake
    with pytest.raises(Fenced, match="does not count"):
        await ours.settings.tombstone(newer.key.decode(), LEADER_EPOCH)
    assert ours.topic() == topic(trim=True)


async def test_a_decision_on_an_older_record_does_not_overwrite_a_newer_one(
    ours: Process, other: Process
) -> None:
    """Decided, then all brokers were asked; another one changed the topic meanwhile."""
    await ours.settings.publish(topic(trim=True), LEADER_EPOCH)
    seen = ours.settings.view.next_offset
    await other.settings.barrier(1_000)
    await other.settings.publish(topic(trim=False), LEADER_EPOCH)
    for _ in range(2):  # not known yet, then known
        with pytest.raises(Fenced):
            await ours.settings.publish(topic(trim=True), LEADER_EPOCH, seen)
        assert ours.topic() == topic(trim=False)


async def test_a_new_leader_overrules_what_it_did_not_know_of_an_old_one(
    ours: Process, other: Process
) -> None:
    record = DivergenceRecord(partition=KEY, action="adopt", epoch=6, offset=9, cause="new")
    old = DivergenceRecord(partition=KEY, action="discard", epoch=5, offset=4, cause="old")
    await other.settings.publish(old, LEADER_EPOCH)
    seen = ours.settings.view.next_offset
    assert seen == 0
    await ours.settings.publish(record, LEADER_EPOCH + 1, seen)
    assert ours.settings.view.divergence(KEY) == record


async def test_records_of_an_older_version_count_as_they_come(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.settings.publish(topic(trim=False), LEADER_EPOCH)
    topics.append(written(topic(trim=True), LEADER_EPOCH))
    assert ours.topic() == topic(trim=True)
    topics.append(Record(topic_partition=PARTITION, key=topic(trim=True).key.encode(), value=None))
    assert ours.topic() is None


async def test_a_header_of_another_size_is_a_problem(ours: Process, topics: FakeTopics) -> None:
    record = written(topic(trim=False), LEADER_EPOCH)
    topics.append(replace(record, headers=(("rlm.seen", b"1"),)))
    assert ours.topic() is None
    assert "headers" in (ours.settings.view.problem or "")


async def test_h02_a_start_that_lands_late_still_only_rises(ours: Process) -> None:
    def start(offset: int) -> StartRecord:
        return StartRecord(partition=KEY, remote_log_start_offset=offset, cause="delete-records")

    await ours.lose(start(200), LEADER_EPOCH)
    await ours.settings.publish(start(100), LEADER_EPOCH)
    ours.log.land()
    ours.log.read_all()
    assert ours.settings.view.remote_log_start(KEY) == 200


def start(offset: int, partition: PartitionKey = KEY) -> StartRecord:
    return StartRecord(partition=partition, remote_log_start_offset=offset, cause="test")


async def test_h02_a_publish_that_was_overtaken_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    """Another service's record of the key lands right behind ours."""
    higher = written(start(90), LEADER_EPOCH)

    def overtake(_: Record) -> None:
        topics.append(higher)

    ours.log.after_append = overtake
    with pytest.raises(Fenced, match="our record at 0 does not count"):
        await ours.settings.publish(start(60), LEADER_EPOCH)
    assert ours.settings.view.remote_log_start(KEY) == 90


async def test_h02_a_publish_under_an_epoch_that_just_ended_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    newer = written(start(50), LEADER_EPOCH + 1)

    def elect(_: Record) -> None:
        topics.append(newer)

    ours.log.before_append = elect
    with pytest.raises(Fenced, match="our record at 1 does not count"):
        await ours.settings.publish(start(60), LEADER_EPOCH)
    assert ours.settings.view.remote_log_start(KEY) == 50


async def test_h02_nothing_is_written_that_is_known_not_to_count(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.settings.publish(start(60), LEADER_EPOCH)
    with pytest.raises(Fenced, match="never goes back"):
        await ours.settings.publish(start(59), LEADER_EPOCH)
    with pytest.raises(Fenced, match="is older than"):
        await ours.settings.publish(start(61), LEADER_EPOCH - 1)
    assert len(topics.records[PARTITION]) == 1


async def test_fields_of_a_later_version_are_written_again(ours: Process) -> None:
    await ours.settings.publish(replace(topic(trim=False), extra={"later": 1}), LEADER_EPOCH)
    await ours.settings.publish(topic(trim=True), LEADER_EPOCH)
    found = ours.settings.view.topic(TOPIC_ID)
    assert found is not None
    assert (found.trim, found.extra) == (True, {"later": 1})


async def test_h02_a_record_that_cannot_be_read_keeps_no_other_from_being_asserted(
    ours: Process, topics: FakeTopics
) -> None:
    """Cleanup does this first, and repairs the ledger then."""
    first = PartitionKey(TOPIC_ID, 0)
    for record in (start(60, first), topic(trim=True)):
        await ours.settings.publish(record, LEADER_EPOCH)
    for denied in (start(10, first), topic(trim=False)):
        topics.append(written(denied, LEADER_EPOCH - 1))
    unread = written(start(10, first), LEADER_EPOCH)
    topics.append(replace(unread, value=b'{"v":2}'))
    ours.log.read_all()
    assert await ours.settings.reassert(first, LEADER_EPOCH) == 1
    assert not ours.settings.view.reassert
    assert ours.settings.problem is not None


async def test_h02_a_leader_asserts_its_own_partitions_records_only(
    ours: Process, topics: FakeTopics
) -> None:
    """A topic's own fact belongs to the leader of partition 0."""
    first, other = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 7)
    await ours.settings.publish(start(60, first), LEADER_EPOCH)
    await ours.settings.publish(start(60, other), LEADER_EPOCH)
    await ours.settings.publish(topic(trim=True), LEADER_EPOCH)
    for denied in (start(10, first), start(10, other), topic(trim=False)):
        topics.append(written(denied, LEADER_EPOCH - 1))
    ours.log.read_all()
    assert ours.settings.view.reassert
    assert await ours.settings.reassert(other, LEADER_EPOCH) == 1
    assert await ours.settings.reassert(KEY, LEADER_EPOCH) == 0
    assert await ours.settings.reassert(first, LEADER_EPOCH) == 2
    assert not ours.settings.view.reassert


def test_h06_a_topic_that_was_recreated_unseen_is_a_problem(
    ours: Process, topics: FakeTopics
) -> None:
    ids = {LEDGER_TOPIC: uuid(1), SETTINGS_TOPIC: uuid(2)}
    ours.log.topic_ids = ids
    cluster = ClusterRecord(
        cluster_id="c", ledger_topic_id=uuid(1), settings_topic_id=uuid(2), default_store_id=None
    )
    topics.append(written(cluster, -1))
    ours.log.read_all()
    assert ours.settings.view.problem is None
    for name in ids:
        ours.log.topic_ids = {**ids, name: uuid(9)}
        assert name in str(ours.settings.problem)


def test_h06_what_was_not_read_or_not_understood_is_a_problem(
    ours: Process, topics: FakeTopics
) -> None:
    topics.append(Record(topic_partition=PARTITION, key=b"freeze", value=b"{}"))
    ours.log.read_all()
    assert "settings offset 0" in (ours.settings.problem or "")
    ours.log.problem = "topic is missing"
    assert ours.settings.problem == "topic is missing"
    ours.log.is_ready = False
    assert ours.settings.problem == "the settings were not read to their end yet"


async def test_h17_a_barrier_reads_what_others_wrote(ours: Process, topics: FakeTopics) -> None:
    topics.append(written(start(60), LEADER_EPOCH))
    assert ours.settings.view.remote_log_start(KEY) is None
    await ours.settings.barrier(1_000)
    assert ours.settings.view.remote_log_start(KEY) == 60


def test_h16_what_the_replay_brings_is_no_sign_of_life(topics: FakeTopics) -> None:
    """It may be years old."""
    beat = ServiceRecord(node_id=3, listen={}, advertised={}, version="1")
    topics.append(written(beat, -1))
    late = Process(topics)
    assert late.settings.view.heard_age_ms(beat.key, 1_000_000) is None
    topics.append(written(beat, -1))
    late.log.read_all()
    assert late.settings.view.heard_age_ms(beat.key, 1_000_000) == 0
