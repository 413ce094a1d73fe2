"""The ledger's manager: a publish counts only when it was read back as the newest of its key, and
what is known of what was not (H3, H6, H10).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.ids import PartitionKey, TopicPartition
from kip405.segments import CustomMetadata, Layout, RemoteLogSegmentMetadata
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.records import (
    HEADER_VERSION,
    NO_PREVIOUS,
    LedgerKey,
    RecordHeaders,
    encode_record_value,
    ledger_partition,
)
from rlmm.topic import LEDGER_TOPIC
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlmm.builders import DELETED, DELETING, FINISHED, KEY, STARTED, segment, uuid

LEDGER_PARTITION = TopicPartition(LEDGER_TOPIC, ledger_partition(KEY))
ABSENCE_KNOWN_WITHIN_MS = 300_000


class Process:
    """One service's manager; several of them share a log."""

    def __init__(self, topics: FakeTopics, writer: int = 1, *, replay_ms: int = 0) -> None:
        self.log = FakeMetadataLog(topics)
        self.manager = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=uuid(1_000 + writer), publish_timeout_ms=1_000
        )
        self.log.go_live(replay_ms)

    async def copied(self, number: int, epoch: int = 5) -> RemoteLogSegmentMetadata:
        await self.manager.publish(segment(number, STARTED), epoch, NO_PREVIOUS)
        await self.manager.publish(segment(number, FINISHED), epoch, int(STARTED))
        return segment(number, FINISHED)


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics()


@pytest.fixture
def ours(topics: FakeTopics) -> Process:
    return Process(topics, 1)


def written(
    metadata: RemoteLogSegmentMetadata | None,
    number: int,
    *,
    epoch: int = 5,
    previous: int = NO_PREVIOUS,
    writer: int = 2,
) -> Record:
    """A record of another process, checked by nobody."""
    headers = RecordHeaders(
        leader_epoch=epoch, expected_previous=previous, writer=uuid(1_000 + writer)
    )
    return Record(
        topic_partition=LEDGER_PARTITION,
        key=LedgerKey(partition=KEY, segment_id=uuid(number)).encode(),
        value=encode_record_value(metadata),
        headers=tuple(headers.encode()),
    )


def first_time(what: Callable[[], object]) -> Callable[[Record], None]:
    left = [what]

    def done(_: Record) -> None:
        if left:
            left.pop()()

    return done


async def test_a_publish_is_in_the_view_when_it_returns(ours: Process) -> None:
    await ours.copied(1)
    entry = ours.manager.ledger(KEY).entries[uuid(1)]
    assert (entry.state, entry.leader_epoch, entry.writer) == (FINISHED, 5, uuid(1_001))
    assert entry.offset == 1
    assert not entry.disputed
    assert ours.manager.partitions() == (KEY,)


async def test_h10_another_segments_record_in_between_does_no_harm(
    ours: Process, topics: FakeTopics
) -> None:
    between = written(segment(2, STARTED), 2)
    ours.log.before_append = first_time(lambda: topics.append(between))
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    assert set(ours.manager.ledger(KEY).entries) == {uuid(1), uuid(2)}


async def test_h03_a_publish_that_was_overtaken_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    """The leader of a newer epoch ended the attempt right after our record."""
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    sweep = written(segment(1, DELETING), 1, epoch=6, previous=int(FINISHED))
    ours.log.after_append = first_time(lambda: topics.append(sweep))
    with pytest.raises(Fenced, match="overtaken by 2"):
        await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))


async def test_h03_a_publish_that_was_overtaken_by_a_tombstone_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    gone = written(None, 1, epoch=6, previous=int(FINISHED))
    ours.log.after_append = first_time(lambda: topics.append(gone))
    with pytest.raises(Fenced, match="overtaken by None"):
        await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))


async def test_h03_a_publish_of_an_epoch_that_just_ended_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    """Ours is the newest record of its key, and illegal: a newer epoch has spoken before it."""
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    newer = written(segment(2, STARTED), 2, epoch=6)
    ours.log.before_append = first_time(lambda: topics.append(newer))
    with pytest.raises(Fenced, match="our record at 2 is illegal: leader epoch 5 is older than 6"):
        await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))


async def test_h03_a_publish_that_expected_another_state_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    begun = written(segment(1, DELETING), 1, previous=int(STARTED))
    ours.log.before_append = first_time(lambda: topics.append(begun))
    with pytest.raises(Fenced, match="is illegal"):
        await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))


async def test_h03_nothing_is_written_under_an_epoch_that_is_known_to_be_over(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.copied(1, epoch=6)
    with pytest.raises(Fenced, match="leader epoch 5 is older than 6"):
        await ours.manager.publish(segment(2, STARTED), 5, NO_PREVIOUS)
    await ours.manager.publish(segment(2, STARTED), 6, NO_PREVIOUS)
    assert len(topics.records[LEDGER_PARTITION]) == 3


@pytest.mark.parametrize("expected", [NO_PREVIOUS, int(STARTED), int(DELETED)])
async def test_h03_nothing_is_written_on_a_state_that_is_known_to_be_over(
    ours: Process, topics: FakeTopics, expected: int
) -> None:
    await ours.copied(1)
    with pytest.raises(Fenced, match=f"state is 1, {expected} was expected"):
        await ours.manager.publish(segment(1, FINISHED), 5, expected)
    assert len(topics.records[LEDGER_PARTITION]) == 2


async def test_an_unlawful_change_is_refused_and_an_adoption_is_none(
    ours: Process, topics: FakeTopics
) -> None:
    with pytest.raises(Invalid, match="no change from None to DELETE_SEGMENT_FINISHED"):
        await ours.manager.publish(segment(1, DELETED), 5, NO_PREVIOUS)
    assert topics.records == {}
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    await ours.manager.publish(segment(1, DELETING), 5, int(STARTED))
    await ours.manager.publish(segment(1, FINISHED), 5, int(DELETING))
    assert ours.manager.ledger(KEY).entries[uuid(1)].state is FINISHED


async def test_a_tombstone_removes_a_segment_whose_deletion_is_finished(ours: Process) -> None:
    finished = await ours.copied(1)
    with pytest.raises(Fenced, match="state is 1, 3 was expected"):
        await ours.manager.tombstone(finished.segment_id, 5)
    await ours.manager.publish(segment(1, DELETING), 5, int(FINISHED))
    await ours.manager.publish(segment(1, DELETED), 5, int(DELETING))
    await ours.manager.tombstone(finished.segment_id, 5)
    assert not ours.manager.ledger(KEY).entries


async def test_h03_a_tombstone_that_was_overtaken_does_not_count(
    ours: Process, topics: FakeTopics
) -> None:
    finished = await ours.copied(1)
    await ours.manager.publish(segment(1, DELETING), 5, int(FINISHED))
    await ours.manager.publish(segment(1, DELETED), 5, int(DELETING))
    zombie = written(finished, 1, epoch=6, previous=int(STARTED))
    ours.log.after_append = first_time(lambda: topics.append(zombie))
    with pytest.raises(Fenced, match="overtaken by 5"):
        await ours.manager.tombstone(finished.segment_id, 5)


async def test_h10_a_publish_of_unknown_outcome_shows_behind_a_barrier(ours: Process) -> None:
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    ours.log.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))
    assert ours.manager.ledger(KEY).entries[uuid(1)].state is STARTED
    ours.log.land()
    await ours.manager.barrier(KEY, 1_000)
    assert ours.manager.ledger(KEY).entries[uuid(1)].state is FINISHED


async def test_h10_a_publish_that_was_not_written_changes_nothing(ours: Process) -> None:
    ours.log.error = Unavailable("publish, nothing was sent")
    with pytest.raises(Unavailable, match="nothing was sent"):
        await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    assert not ours.manager.ledger(KEY).entries


async def test_h17_a_barrier_is_of_the_partition_of_its_key(
    ours: Process, topics: FakeTopics
) -> None:
    topics.append(written(segment(1, STARTED), 1))
    assert not ours.manager.ledger(KEY).entries
    await ours.manager.barrier(KEY, 1_000)
    assert ours.log.barriers == [LEDGER_PARTITION]
    assert set(ours.manager.ledger(KEY).entries) == {uuid(1)}


async def test_h03_the_leader_publishes_again_what_a_zombie_denied(topics: FakeTopics) -> None:
    ours = Process(topics)
    await ours.copied(1)
    await ours.copied(2)
    topics.append(written(segment(1, DELETING), 1, epoch=4, previous=int(STARTED)))
    ours.log.read_all()
    assert ours.manager.ledger(KEY).entries[uuid(1)].disputed
    assert await ours.manager.repair(KEY, 5) == 1
    view = ours.manager.ledger(KEY)
    assert (view.entries[uuid(1)].state, view.disputes) == (FINISHED, {})
    assert await ours.manager.repair(KEY, 5) == 0


async def test_h03_a_dispute_that_was_settled_meanwhile_is_left_alone(topics: FakeTopics) -> None:
    """While the first repair was under way somebody else mended the second."""
    ours = Process(topics)
    await ours.copied(1)
    await ours.copied(2)
    for number in (1, 2):
        topics.append(written(segment(number, DELETING), number, epoch=4, previous=0))
    ours.log.read_all()
    mended = written(segment(2, FINISHED), 2, epoch=6, previous=int(DELETING))
    ours.log.after_append = first_time(lambda: topics.append(mended))
    assert await ours.manager.repair(KEY, 5) == 1
    assert len(topics.records[LEDGER_PARTITION]) == 8
    assert not ours.manager.ledger(KEY).disputes


def unreadable(number: int) -> Record:
    good = written(segment(number, STARTED), number)
    return Record(
        topic_partition=good.topic_partition,
        key=good.key,
        value=b"\x09nonsense",
        headers=good.headers,
    )


async def test_h06_a_record_that_cannot_be_read_is_a_problem_until_its_key_is_mended(
    ours: Process, topics: FakeTopics
) -> None:
    await ours.copied(1)
    topics.append(unreadable(2))
    ours.log.read_all()
    assert "offset 2" in (ours.manager.problem or "")
    assert ours.manager.damage == ours.manager.problem
    others = (PartitionKey(KEY.topic_id, number) for number in range(100))
    other = next(one for one in others if ledger_partition(one) != ledger_partition(KEY))
    assert ours.manager.damage_of(KEY) == ours.manager.damage
    assert ours.manager.damage_of(other) is None, "its records are elsewhere"
    topics.append(written(segment(3, STARTED), 3))
    ours.log.read_all()
    assert ours.manager.problem
    topics.append(written(segment(2, STARTED), 2))
    ours.log.read_all()
    assert ours.manager.problem is None


def of_a_later_version(key: bytes, value: bytes | None) -> Record:
    good = written(segment(1, STARTED), 1)
    return Record(topic_partition=good.topic_partition, key=key, value=value, headers=good.headers)


@pytest.mark.parametrize("suffix", [b"", uuid(1).raw, b"*"], ids=["whole", "segment", "other"])
async def test_h06_a_record_of_a_later_version_stops_its_own_partition_only(
    ours: Process, topics: FakeTopics, suffix: bytes
) -> None:
    """It is kept, skipped and reported until its key gets a record that can be read, or ends."""
    await ours.copied(1)
    key = LedgerKey(partition=KEY, segment_id=None).encode() + suffix
    topics.append(of_a_later_version(key, b"\x01\x07\x00new"))
    ours.log.read_all()
    assert (ours.manager.problem, ours.manager.damage) == (None, None)
    view = ours.manager.ledger(KEY)
    assert "api key 7, version 0" in (view.deletion_problem or "")
    assert view.later_problem == view.deletion_problem
    assert [one.state for one in view.entries.values()] == [FINISHED]
    assert ours.manager.ledger(PartitionKey(KEY.topic_id, 77)).deletion_problem is None
    await ours.manager.publish(segment(3, STARTED), 5, NO_PREVIOUS)
    assert ours.manager.ledger(KEY).later_problem
    after_a_restart = Process(topics, 2)
    after_a_restart.log.read_all()
    assert after_a_restart.manager.ledger(KEY).later_problem == view.later_problem

    topics.append(of_a_later_version(key, None))
    ours.log.read_all()
    assert ours.manager.problem is None
    assert ours.manager.ledger(KEY).deletion_problem is None


def test_h06_the_problems_of_the_log_are_the_ledgers(ours: Process) -> None:
    def error_text() -> tuple[str | None, str | None]:
        return ours.manager.problem, ours.manager.damage

    assert error_text() == (None, None)
    ours.log.problem = "topic was recreated"
    assert error_text() == ("topic was recreated", None)
    ours.log.damage = "records were removed before being read"
    assert error_text() == (ours.log.damage, ours.log.damage)
    assert ours.manager.damage_of(KEY) == ours.log.damage
    ours.log.is_ready = False
    assert error_text() == ("the ledger was not read to its end yet", ours.log.damage)


@pytest.mark.parametrize(
    ("replay_ms", "is_known"),
    [
        (0, True),
        (ABSENCE_KNOWN_WITHIN_MS - 1, True),
        (ABSENCE_KNOWN_WITHIN_MS, False),
        (-1, False),  # the clock was set back: nobody knows how long it took
    ],
)
async def test_h03_after_a_short_replay_a_finished_out_of_nowhere_is_disputed(
    topics: FakeTopics, replay_ms: int, is_known: bool
) -> None:
    late = Process(topics, replay_ms=replay_ms)
    topics.append(written(segment(1, FINISHED), 1, previous=int(STARTED)))
    late.log.read_all()
    assert bool(late.manager.ledger(KEY).entries[uuid(1)].disputed) is is_known


async def test_a_view_is_made_once_and_again_after_each_record(ours: Process) -> None:
    assert ours.manager.ledger(KEY).version == 0
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    first = ours.manager.ledger(KEY)
    assert ours.manager.ledger(KEY) is first
    await ours.manager.publish(segment(1, FINISHED), 5, int(STARTED))
    assert ours.manager.ledger(KEY) is not first


async def test_finished_ids_are_those_of_segments_that_can_be_read(ours: Process) -> None:
    await ours.copied(1)
    await ours.copied(2)
    await ours.manager.publish(segment(3, STARTED), 5, NO_PREVIOUS)
    assert set().union(*ours.manager.finished_ids()) == {uuid(1).raw, uuid(2).raw}
    await ours.manager.publish(segment(1, DELETING), 5, int(FINISHED))
    assert set().union(*ours.manager.finished_ids()) == {uuid(2).raw}


async def test_h06_records_of_another_layout_say_so_in_their_version(
    ours: Process, topics: FakeTopics
) -> None:
    custom = CustomMetadata(store_id=uuid(9), layout=Layout.BLOCKS).encode()
    await ours.manager.publish(segment(1, STARTED), 5, NO_PREVIOUS)
    await ours.manager.publish(replace(segment(2, STARTED), custom_metadata=custom), 5, NO_PREVIOUS)
    versions = [dict(one.headers)[HEADER_VERSION] for one in topics.records[LEDGER_PARTITION]]
    assert versions == [b"\x01", b"\x02"]
