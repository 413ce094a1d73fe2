"""kip405.contracts.RemoteLogMetadataManager over the ledger: states as in Kafka's tests.

Those are RemoteLogMetadataCacheTest and TopicBasedRemoteLogMetadataManagerTest.
"""

import pytest

from kip405.contracts import RemoteLogMetadataManager
from kip405.errors import Corrupt, Fenced, Invalid
from kip405.ids import TopicPartition
from kip405.segments import (
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.ledger_values import decode_partition_delete, encode_partition_delete
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.publisher import Record
from rlmm.records import NO_PREVIOUS, LedgerKey, RecordHeaders, ledger_partition
from rlmm.topic import LEDGER_TOPIC
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, PARTITION, STARTED, segment, uuid

EPOCH = 5
MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
REMOVING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
REMOVED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


class Process:
    """One service; it leads the partition under epoch 5, unless a test says otherwise."""

    def __init__(self, topics: FakeTopics, writer: int = 1) -> None:
        self.log = FakeMetadataLog(topics)
        self.topic_based = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=uuid(1_000 + writer), publish_timeout_ms=1_000
        )
        self.log.go_live(0)
        self.manager: RemoteLogMetadataManager = self.topic_based

    async def bring(self, number: int, *states: RemoteLogSegmentState) -> None:
        """Publish the segment in each state, one after the other."""
        previous = NO_PREVIOUS
        for state in states:
            await self.manager.publish(segment(number, state), EPOCH, previous)
            previous = int(state)


def deletion(state: RemotePartitionDeleteState) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        topic_id_partition=PARTITION, event_timestamp_ms=77, broker_id=2, state=state
    )


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics()


@pytest.fixture
def ours(topics: FakeTopics) -> Process:
    return Process(topics)


_PATHS: dict[RemoteLogSegmentState | None, tuple[RemoteLogSegmentState, ...]] = {
    None: (),
    STARTED: (STARTED,),
    FINISHED: (STARTED, FINISHED),
    DELETING: (STARTED, DELETING),
    DELETED: (STARTED, DELETING, DELETED),
}


@pytest.mark.parametrize(
    ("before", "lawful"),
    [
        (None, {STARTED, FINISHED}),
        (STARTED, {STARTED, FINISHED, DELETING}),
        (FINISHED, {FINISHED, DELETING}),
        (DELETING, {FINISHED, DELETING, DELETED}),
        (DELETED, {FINISHED, DELETED}),
    ],
)
@pytest.mark.parametrize("after", RemoteLogSegmentState)
async def test_states_follow_kafkas_state_machine_and_finished_may_come_back(
    ours: Process,
    before: RemoteLogSegmentState | None,
    after: RemoteLogSegmentState,
    lawful: set[RemoteLogSegmentState],
) -> None:
    """Kafka refuses FINISHED out of nothing and after deletions; here that is an adoption (H6)."""
    await ours.bring(1, *_PATHS[before])
    previous = NO_PREVIOUS if before is None else int(before)
    change = ours.manager.publish(segment(1, after), EPOCH, previous)
    if after in lawful:
        await change
        assert ours.topic_based.ledger(KEY).entries[uuid(1)].state is after
    else:
        with pytest.raises(Invalid, match=after.name):
            await change


async def test_a_segment_that_is_there_is_not_added_again(ours: Process) -> None:
    await ours.bring(1, STARTED)
    with pytest.raises(Fenced, match="state is 0, -1 was expected"):
        await ours.bring(1, STARTED)


async def test_h03_a_leader_of_an_older_epoch_is_fenced(ours: Process, topics: FakeTopics) -> None:
    newer = Process(topics, writer=2)
    await newer.manager.publish(segment(1, STARTED), EPOCH + 1, NO_PREVIOUS)
    ours.log.read_all()
    with pytest.raises(Fenced, match="older than 6"):
        await ours.bring(2, STARTED)
    with pytest.raises(Fenced, match="older than 6"):
        await ours.manager.put_remote_partition_delete_metadata(deletion(MARKED), EPOCH)


async def test_nothing_is_added_to_a_partition_that_is_being_deleted(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.bring(1, STARTED, FINISHED)
    for state in (MARKED, REMOVING, REMOVING, REMOVED):
        await ours.manager.put_remote_partition_delete_metadata(deletion(state), EPOCH)
        with pytest.raises(Fenced, match="being deleted"):
            await ours.bring(2, STARTED)
    later = Process(topics, writer=2)
    later.log.read_all()
    view = later.topic_based.ledger(KEY)
    assert view.entries, "callers decide by the segments' records"
    assert view.is_deleted
    assert later.topic_based.problem is None


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ((), REMOVING),
        ((), REMOVED),
        ((MARKED,), REMOVED),
        ((MARKED, REMOVING), MARKED),
        ((MARKED, REMOVING, REMOVED), REMOVING),
    ],
)
async def test_the_deletion_of_a_partition_follows_kafkas_state_machine(
    ours: Process,
    path: tuple[RemotePartitionDeleteState, ...],
    after: RemotePartitionDeleteState,
) -> None:
    for state in path:
        await ours.manager.put_remote_partition_delete_metadata(deletion(state), EPOCH)
    with pytest.raises(Invalid, match=after.name):
        await ours.manager.put_remote_partition_delete_metadata(deletion(after), EPOCH)


async def test_a_deletion_needs_no_leader_but_the_newest_epoch(ours: Process) -> None:
    manager, key = ours.topic_based, PARTITION.key
    await manager.publish(segment(1, STARTED), 7, NO_PREVIOUS)
    with pytest.raises(Fenced, match="older than 7"):
        await manager.put_remote_partition_delete_metadata(deletion(MARKED), 6)
    await manager.put_remote_partition_delete_metadata(deletion(MARKED), 7)
    assert manager.ledger(key).deletion_state is MARKED
    with pytest.raises(Fenced, match="older than 7"):
        await manager.tombstone_partition_delete(key, 6)
    await manager.tombstone_partition_delete(key, 7)
    assert manager.ledger(key).deletion is None
    assert manager.ledger(key).deletion_problem is None


async def test_a_deletion_that_is_overtaken_stops(topics: FakeTopics, ours: Process) -> None:
    manager = ours.topic_based
    await manager.put_remote_partition_delete_metadata(deletion(MARKED), 7)

    def overtake(_: Record) -> None:
        topics.append(by_another(deletion(MARKED)))

    ours.log.after_append = overtake
    with pytest.raises(Fenced, match="overtaken"):
        await manager.put_remote_partition_delete_metadata(deletion(REMOVING), 7)
    with pytest.raises(Fenced, match="overtaken"):
        await manager.tombstone_partition_delete(PARTITION.key, 7)


def by_another(metadata: RemotePartitionDeleteMetadata) -> Record:
    """The partition-delete record of another service."""
    key = LedgerKey(partition=PARTITION.key, segment_id=None)
    headers = RecordHeaders(leader_epoch=7, expected_previous=NO_PREVIOUS, writer=uuid(9))
    return Record(
        topic_partition=TopicPartition(LEDGER_TOPIC, ledger_partition(PARTITION.key)),
        key=key.encode(),
        value=encode_partition_delete(metadata),
        headers=tuple(headers.encode()),
    )


def test_a_partition_delete_record_has_the_bytes_of_kafkas_message() -> None:
    data = encode_partition_delete(deletion(REMOVING))
    assert data.hex() == (
        "01020007" + b"orders".hex() + PARTITION.topic_id.raw.hex() + "00000003" + "00"
        "00000002" + "000000000000004d" + "01" + "00"
    )
    assert decode_partition_delete(data) == deletion(REMOVING)
    for wrong in (data[:-1], data + b"\0", b"\x01\x00" + data[2:], data[:-2] + b"\x09\x00"):
        with pytest.raises(Corrupt):
            decode_partition_delete(wrong)


async def test_nothing_is_expected_of_a_key_without_records(ours: Process) -> None:
    await ours.bring(1, STARTED)
    record = next(iter(ours.log.topics.records.values()))[0]
    headers = dict(record.headers)
    assert headers["rlm.prev"] == NO_PREVIOUS.to_bytes(1, "big", signed=True)
    assert headers["rlm.epoch"] == EPOCH.to_bytes(4, "big")
