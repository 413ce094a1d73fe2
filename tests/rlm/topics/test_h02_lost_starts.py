"""No topic is enabled where its start may have been lost, and others are (H1, H2, H10)."""

from dataclasses import replace

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentState, RemotePartitionDeleteState
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.remote_log.log_starts import Remains
from rlm.topics.partition_records import Starts
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlmm.ledger import Hole
from rlmm.settings_records import (
    HolesRecord,
    SettingsRecord,
    StartRecord,
    TopicRecord,
    TrimRecord,
)
from tests.builders.ledger import PARTITION, MemoryLedger, MemorySettings, metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETE_STARTED = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
TRIM = TrimRecord(partition=PARTITION.key, bound=100, planned_epoch=0)
HOLES = HolesRecord(partition=PARTITION.key, holes=(Hole(start=20, end=30, cause="tests"),))


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


def lose(cluster: Cluster, *kinds: type[SettingsRecord]) -> None:
    """The settings topic has lost the topic's newest records of these kinds."""
    keys = tuple(f"{kind.KIND}/{TOPIC_ID}".encode() for kind in kinds)
    cluster.records = [one for one in cluster.records if not one[0].startswith(keys)]


def lost_topic() -> ServiceUnderTest:
    """[0, 100) is remote and trimmed, and of the topic the settings know nothing any more."""
    cluster = Cluster()
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    service.ledger.copied(metadata(1, 0, 50, {0: 0}), metadata(2, 50, 100, {0: 0}))
    return service


def options(remains: Remains) -> EnableOptions:
    return EnableOptions(trim=True, yes=True, remains=remains)


async def test_h01_a_topic_whose_settings_were_lost_does_not_begin_at_our_own_trim() -> None:
    """Everything remote would lie below the start, and the next expiration delete it."""
    cluster = Cluster()
    await enabled(cluster)
    lose(cluster, TopicRecord, StartRecord)
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    service.ledger.copied(metadata(1, 0, 50, {0: 0}), metadata(2, 50, 100, {0: 0}))
    words = r"2 remote segments \(2 bytes, offsets 0 to 99\) .*start 100.*--keep-remote.*--yes"
    with pytest.raises(Fenced, match=words):
        await service.verbs.enable(TOPIC, options(Remains.UNDECIDED))
    assert cluster.record() is None
    assert service.start_of(0) is None


async def test_h01_an_operator_keeps_what_is_remote_of_a_topic_whose_settings_were_lost() -> None:
    service = lost_topic()
    await service.verbs.enable(TOPIC, options(Remains.KEEP))
    assert service.start_of(0) == 0


async def test_h10_an_operator_ends_what_arrived_late_of_a_remote_log_that_has_ended() -> None:
    """The simulator's seed 1101946: the copy of a zombie, after `disable --delete`."""
    service = lost_topic()
    await service.verbs.enable(TOPIC, options(Remains.END))
    assert service.start_of(0) == 100


async def test_h39_no_topic_is_enabled_by_itself_over_remote_segments_of_its_id() -> None:
    cluster = Cluster()
    await enabled(cluster)
    before = cluster.record()
    assert before is not None
    gone = replace(before, topic_id=Uuid(b"g" * 16))
    service = lost_topic()
    with pytest.raises(Fenced, match="2 remote segments"):
        await service.verbs.enable_like(gone, TOPIC_ID)
    assert service.start_of(0) is None


@pytest.mark.parametrize("state", [STARTED, DELETE_STARTED], ids=lambda one: one.name)
async def test_h06_what_may_be_a_copy_is_no_leftover(state: RemoteLogSegmentState) -> None:
    """An attempt may have its manifest, and a record of a deletion may be a zombie's (H3)."""
    cluster = Cluster()
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    service.ledger.write(metadata(1, 0, 50, {0: 0}, state=STARTED))
    if state is DELETE_STARTED:
        service.ledger.write(metadata(1, 0, 50, {0: 0}, state=state), previous=int(STARTED))
    with pytest.raises(Fenced, match="1 remote segments"):
        await service.verbs.enable(TOPIC, options(Remains.UNDECIDED))
    if state is STARTED:
        service.ledger.write(metadata(1, 0, 50, {0: 0}, state=DELETE_STARTED), previous=int(state))
    gone = metadata(1, 0, 50, {0: 0}, state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    service.ledger.write(gone, previous=int(DELETE_STARTED))
    await service.verbs.enable(TOPIC, options(Remains.UNDECIDED))
    assert service.start_of(0) == 100


async def test_what_is_remote_of_what_the_broker_has_is_in_nobodys_way() -> None:
    service = lost_topic()
    service.cluster.log_starts = {0: 0}
    await service.verbs.enable(TOPIC, options(Remains.UNDECIDED))
    assert service.start_of(0) == 0


@pytest.mark.parametrize("sign", [TRIM, HOLES], ids=lambda one: str(one.KIND))
async def test_h01_nobody_ends_a_remote_log_of_which_settings_are_left(
    sign: TrimRecord | HolesRecord,
) -> None:
    """They go with its end, so they show that the rest was lost. With no segments, the ledger was
    lost, too.
    """
    service = lost_topic()
    await service.settings.publish(sign, 0)
    with pytest.raises(Fenced, match=r"they have lost records.*--keep-remote"):
        await service.verbs.enable(TOPIC, options(Remains.END))
    assert service.start_of(0) is None
    service.ledger.log.clear()
    service.ledger.restart()
    for remains in Remains:
        with pytest.raises(
            Fenced, match=r"they have lost records.* from a backup of the settings$"
        ):
            await service.verbs.enable(TOPIC, options(remains))
    assert service.start_of(0) is None
    again = lost_topic()
    await again.settings.publish(sign, 0)
    await again.verbs.enable(TOPIC, options(Remains.KEEP))
    assert again.start_of(0) == 0


async def test_h06_no_topic_is_enabled_while_its_deletion_appears_behind_the_barrier() -> None:
    service = lost_topic()
    begun = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
    service.ledger.on_barrier = lambda: service.ledger.delete_partition(begun)
    with pytest.raises(Fenced, match="is being deleted"):
        await service.verbs.enable(TOPIC, options(Remains.END))
    assert service.start_of(0) is None


async def test_what_a_retention_makes_deletable_of_what_is_kept_is_shown_first() -> None:
    """Nothing says what was in force; the present one would end it after the delay."""
    service = lost_topic()
    service.clock.advance(10_000_000)
    wanted = EnableOptions(retention=RetentionOptions(retention_ms=1), remains=Remains.KEEP)
    (found,) = (await service.verbs.plan_retention(TOPIC, wanted)).deletable
    assert (found.start_offset, found.next_offset) == (0, 100)
    with pytest.raises(Fenced, match="--yes confirms it"):
        await service.verbs.enable(TOPIC, wanted)
    assert service.start_of(0) is None
    undecided = replace(wanted, remains=Remains.UNDECIDED)
    assert (await service.verbs.plan_retention(TOPIC, undecided)).deletable == ()


@pytest.mark.parametrize("state", ["enabled", "kept"])
@pytest.mark.parametrize("sign", ["trim", "holes", "attempt"])
async def test_h02_whatever_shows_that_there_was_a_start_keeps_another_one_out(
    state: str, sign: str
) -> None:
    """The ledger may have lost the segments, too: `rlm ledger rebuild` would add them as ended."""
    cluster = Cluster()
    service = await enabled(cluster)
    if state == "kept":
        await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    before = cluster.record()
    lose(cluster, StartRecord)
    cluster.log_starts = {0: 100}
    service = ServiceUnderTest(cluster)
    if sign == "attempt":
        service.ledger.write(metadata(1, 0, 50, {0: 0}, state=STARTED))
    else:
        await service.settings.publish(TRIM if sign == "trim" else HOLES, 0)
    with pytest.raises(Unavailable, match=r"the settings have lost the record.*adopt-log-start"):
        await service.verbs.enable(TOPIC, options(Remains.END))
    assert cluster.record() == before
    assert service.start_of(0) is None


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


async def test_a_record_of_somebody_else_that_cannot_be_read_keeps_no_topic_disabled() -> None:
    """As the heartbeat of a reader that is gone."""
    cluster = Cluster()
    cluster.append(b"reader/gone", b'{"v":2}', (), 0)
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    assert service.settings.problem is not None
    assert service.start_of(0) is not None


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
