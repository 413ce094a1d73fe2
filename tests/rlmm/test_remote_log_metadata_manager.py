"""KIP-405's RemoteLogMetadataManager over the ledger, with the cases of Kafka's tests.

Those are RemoteLogSegmentLifecycleTest, RemoteLogMetadataCacheTest and
TopicBasedRemoteLogMetadataManagerTest.
"""

import pytest

from kip405.contracts import RemoteLogMetadataManager
from kip405.errors import Corrupt, Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from kip405.segments import (
    CustomMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.publisher import Record
from rlmm.records import (
    NO_PREVIOUS,
    LedgerKey,
    RecordHeaders,
    decode_partition_delete,
    encode_partition_delete,
    encode_record_value,
    ledger_partition,
)
from rlmm.topic import LEDGER_TOPIC
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlmm.builders import (
    DELETED,
    DELETING,
    FINISHED,
    KEY,
    PARTITION,
    STARTED,
    STORE_ID,
    segment,
    uuid,
)

COPIED = CustomMetadata(store_id=STORE_ID, indexes_size_bytes=100).encode()
EPOCH = 5
MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
REMOVING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
REMOVED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


class Process:
    """One service that leads the partition under epoch 5, unless a test says otherwise."""

    def __init__(self, topics: FakeTopics, writer: int = 1) -> None:
        self.log = FakeMetadataLog(topics)
        self.topic_based = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=uuid(1_000 + writer), publish_timeout_ms=1_000
        )
        self.log.go_live(0)
        self.manager: RemoteLogMetadataManager = self.topic_based
        self.manager.on_partition_leadership_changes({PARTITION: EPOCH}, set())

    async def bring(
        self, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
    ) -> None:
        """Add the segment and update it to each state."""
        await self.manager.add_remote_log_segment_metadata(metadata)
        for state in states:
            await self.manager.update_remote_log_segment_metadata(update(metadata, state))


def update(
    metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=metadata.segment_id,
        event_timestamp_ms=77,
        broker_id=2,
        state=state,
        custom_metadata=COPIED if state is FINISHED else None,
    )


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


async def test_the_life_cycle_of_segments_as_in_kafkas_own_test(ours: Process) -> None:
    manager = ours.manager
    first = segment(1, STARTED, start=0, end=100, epochs=((0, 0), (1, 20), (2, 80)))
    await ours.bring(first)
    assert manager.remote_log_segment_metadata(PARTITION, 1, 40) is None
    assert [manager.highest_offset_for_epoch(PARTITION, epoch) for epoch in range(3)] == [None] * 3
    assert manager.list_remote_log_segments(PARTITION) == (first,)
    await manager.update_remote_log_segment_metadata(update(first, FINISHED))
    await ours.bring(segment(2, STARTED, start=101, end=200, epochs=((2, 101),)), FINISHED)
    third = segment(3, STARTED, start=201, end=300, epochs=((2, 201), (3, 240)))
    await ours.bring(third, FINISHED)
    fourth = segment(4, STARTED, start=250, end=400, epochs=((3, 250), (4, 370)))
    await ours.bring(fourth, FINISHED)
    found = manager.remote_log_segment_metadata(PARTITION, 1, 40)
    assert found is not None and found == first.updated(update(first, FINISHED))
    assert (found.broker_id, found.event_timestamp_ms, found.custom_metadata) == (2, 77, COPIED)
    assert manager.remote_log_segment_metadata(PARTITION, 3, 240) == third.updated(
        update(third, FINISHED)
    )
    assert manager.list_remote_log_segments(PARTITION, 4) == (
        fourth.updated(update(fourth, FINISHED)),
    )
    for state, is_listed in ((DELETING, True), (DELETED, False)):
        await manager.update_remote_log_segment_metadata(update(first, state))
        assert manager.remote_log_segment_metadata(PARTITION, 0, 10) is None
        listed = [one.segment_id.id for one in manager.list_remote_log_segments(PARTITION, 0)]
        assert (listed == [uuid(1)]) is is_listed
    ends = [manager.highest_offset_for_epoch(PARTITION, epoch) for epoch in range(6)]
    assert ends == [19, 79, 239, 369, 400, None]


async def test_the_size_of_an_epoch_counts_every_segment_that_is_listed(ours: Process) -> None:
    """TopicBasedRemoteLogMetadataManagerTest.testRemoteLogSizeCalculation: STARTED ones too."""
    await ours.bring(segment(1, STARTED, start=0, end=100, epochs=((0, 0),)))
    await ours.bring(segment(2, STARTED, start=100, end=200, epochs=((0, 100), (1, 150))), FINISHED)
    await ours.bring(segment(3, STARTED, start=200, end=300, epochs=((1, 200),)), DELETING)
    await ours.bring(segment(4, STARTED, start=300, end=400, epochs=((1, 300),)), DELETING, DELETED)
    sizes = [ours.manager.remote_log_size(PARTITION, epoch) for epoch in range(3)]
    assert sizes == [2 * 4_096, 2 * 4_096, 0]


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
async def test_only_a_started_segment_is_added(ours: Process, state: RemoteLogSegmentState) -> None:
    with pytest.raises(Invalid, match="COPY_SEGMENT_STARTED only"):
        await ours.manager.add_remote_log_segment_metadata(segment(1, state))


_PATHS: dict[RemoteLogSegmentState, tuple[RemoteLogSegmentState, ...]] = {
    STARTED: (),
    FINISHED: (FINISHED,),
    DELETING: (DELETING,),
    DELETED: (DELETING, DELETED),
}


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (None, FINISHED, NotFound),
        (None, DELETING, NotFound),
        (STARTED, STARTED, Invalid),
        (STARTED, FINISHED, None),
        (STARTED, DELETING, None),
        (STARTED, DELETED, Invalid),
        (FINISHED, STARTED, Invalid),
        (FINISHED, FINISHED, None),
        (FINISHED, DELETING, None),
        (FINISHED, DELETED, Invalid),
        (DELETING, STARTED, Invalid),
        (DELETING, FINISHED, Invalid),
        (DELETING, DELETING, None),
        (DELETING, DELETED, None),
        (DELETED, FINISHED, Invalid),
        (DELETED, DELETED, None),
    ],
)
async def test_updates_follow_kafkas_state_machine(
    ours: Process,
    before: RemoteLogSegmentState | None,
    after: RemoteLogSegmentState,
    refused: type[RemoteStorageError] | None,
) -> None:
    metadata = segment(1, STARTED)
    if before is not None:
        await ours.bring(metadata, *_PATHS[before])
    change = ours.manager.update_remote_log_segment_metadata(update(metadata, after))
    if refused is None:
        await change
        assert ours.topic_based.ledger(KEY).entries[uuid(1)].state is after
    else:
        with pytest.raises(refused):
            await change


async def test_a_segment_that_is_further_is_not_added_again(ours: Process) -> None:
    metadata = segment(1, STARTED)
    await ours.bring(metadata)
    await ours.manager.add_remote_log_segment_metadata(metadata)  # as Kafka allows
    await ours.manager.update_remote_log_segment_metadata(update(metadata, FINISHED))
    with pytest.raises(Invalid):
        await ours.manager.add_remote_log_segment_metadata(metadata)


async def test_only_the_leader_writes(ours: Process) -> None:
    ours.manager.on_partition_leadership_changes({}, {PARTITION})
    with pytest.raises(Fenced, match="not notified"):
        await ours.manager.add_remote_log_segment_metadata(segment(1, STARTED))
    ours.manager.on_partition_leadership_changes({PARTITION: 6}, set())
    await ours.bring(segment(1, STARTED))
    assert ours.topic_based.ledger(KEY).entries[uuid(1)].leader_epoch == 6
    ours.manager.on_stop_partitions({PARTITION})
    with pytest.raises(Fenced, match="not notified"):
        await ours.manager.update_remote_log_segment_metadata(update(segment(1), FINISHED))


async def test_h03_a_leader_of_an_older_epoch_is_fenced(ours: Process, topics: FakeTopics) -> None:
    newer = Process(topics, writer=2)
    newer.manager.on_partition_leadership_changes({PARTITION: EPOCH + 1}, set())
    await newer.bring(segment(1, STARTED))
    ours.log.read_all()
    with pytest.raises(Fenced, match="older than 6"):
        await ours.bring(segment(2, STARTED))
    with pytest.raises(Fenced, match="older than 6"):
        await ours.manager.put_remote_partition_delete_metadata(deletion(MARKED))


async def test_h03_a_zombies_record_hides_no_segment(ours: Process, topics: FakeTopics) -> None:
    await ours.bring(segment(1, STARTED), FINISHED)
    before = ours.manager.list_remote_log_segments(PARTITION)
    headers = RecordHeaders(
        leader_epoch=EPOCH - 1, expected_previous=int(STARTED), writer=uuid(1_002)
    )
    zombies = Record(
        topic_partition=TopicPartition(LEDGER_TOPIC, ledger_partition(KEY)),
        key=LedgerKey(partition=KEY, segment_id=uuid(1)).encode(),
        value=encode_record_value(segment(1, DELETING)),
        headers=tuple(headers.encode()),
    )
    topics.append(zombies)
    ours.log.read_all()
    assert ours.topic_based.ledger(KEY).entries[uuid(1)].state is DELETING
    assert ours.manager.list_remote_log_segments(PARTITION) == before
    assert ours.manager.remote_log_segment_metadata(PARTITION, 0, 10) == before[0]


async def test_questions_wait_for_the_replay(ours: Process) -> None:
    ours.log.is_ready = False
    for question in (
        lambda: ours.manager.list_remote_log_segments(PARTITION),
        lambda: ours.manager.remote_log_segment_metadata(PARTITION, 0, 0),
        lambda: ours.manager.highest_offset_for_epoch(PARTITION, 0),
        lambda: ours.manager.remote_log_size(PARTITION, 0),
        lambda: ours.manager.next_segment_with_txn_index(PARTITION, 0, 0),
    ):
        with pytest.raises(Unavailable, match="not read to its end"):
            question()


async def test_nothing_is_certain_before_the_replay_is_over(topics: FakeTopics) -> None:
    """A segment that was not read yet is not missing."""
    await Process(topics).bring(segment(1, STARTED))
    replaying = Process(topics, writer=2)
    replaying.log.is_ready = False
    for change in (
        replaying.manager.add_remote_log_segment_metadata(segment(1, STARTED)),
        replaying.manager.update_remote_log_segment_metadata(update(segment(1), FINISHED)),
        replaying.manager.put_remote_partition_delete_metadata(deletion(REMOVING)),
    ):
        with pytest.raises(Unavailable, match="not read to its end"):
            await change


async def test_a_deleted_partition_has_no_segments(ours: Process, topics: FakeTopics) -> None:
    await ours.bring(segment(1, STARTED), FINISHED)
    for state, listed in ((MARKED, 1), (REMOVING, 1), (REMOVING, 1), (REMOVED, 0)):
        await ours.manager.put_remote_partition_delete_metadata(deletion(state))
        assert len(ours.manager.list_remote_log_segments(PARTITION)) == listed
    assert ours.manager.highest_offset_for_epoch(PARTITION, 0) is None
    assert ours.topic_based.ledger(KEY).entries, "our own view decides by the segments' records"
    with pytest.raises(NotFound, match="deleted"):
        await ours.bring(segment(2, STARTED))
    later = Process(topics, writer=2)
    later.log.read_all()
    assert later.topic_based.problem is None
    assert later.manager.list_remote_log_segments(PARTITION) == ()


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
        await ours.manager.put_remote_partition_delete_metadata(deletion(state))
    with pytest.raises(Invalid, match=after.name):
        await ours.manager.put_remote_partition_delete_metadata(deletion(after))


async def test_a_deletion_needs_no_leader_but_the_newest_epoch(ours: Process) -> None:
    manager, key = ours.topic_based, PARTITION.key
    ours.manager.on_stop_partitions([PARTITION])
    await manager.publish(segment(1, STARTED), 7, NO_PREVIOUS)
    with pytest.raises(Fenced, match="older than 7"):
        await manager.publish_partition_delete(deletion(MARKED), 6)
    await manager.publish_partition_delete(deletion(MARKED), 7)
    assert manager.ledger(key).deletion_state is MARKED
    with pytest.raises(Fenced, match="older than 7"):
        await manager.tombstone_partition_delete(key, 6)
    await manager.tombstone_partition_delete(key, 7)
    assert manager.ledger(key).deletion is None
    assert manager.ledger(key).deletion_problem is None


async def test_a_deletion_that_is_overtaken_stops(topics: FakeTopics, ours: Process) -> None:
    manager = ours.topic_based
    await manager.publish_partition_delete(deletion(MARKED), 7)

    def overtake(_: Record) -> None:
        topics.append(by_another(deletion(MARKED)))

    ours.log.after_append = overtake
    with pytest.raises(Fenced, match="overtaken"):
        await manager.publish_partition_delete(deletion(REMOVING), 7)
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
    await ours.bring(segment(1, STARTED))
    record = next(iter(ours.log.topics.records.values()))[0]
    headers = dict(record.headers)
    assert headers["rlm.prev"] == NO_PREVIOUS.to_bytes(1, "big", signed=True)
    assert headers["rlm.epoch"] == EPOCH.to_bytes(4, "big")
