"""Guards of the topic verbs, one at a time: what is kept of a fact, whose topic is altered, and
which starts may move (H2, H14, H39).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, RemoteLogSegmentId, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemotePartitionDeleteState
from rlm.broker.answers import TopicConfigValue, TopicDescription
from rlm.remote_log.log_starts import LogStarts
from rlm.topics import rules
from rlm.topics.partition_records import Freezes, LocalStarts
from rlm.topics.ports import NotLeader
from rlm.topics.rules import RetentionOptions
from rlm.topics.takeover import is_taken_over
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import DiscardRecord, StartRecord, TopicRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.audit import MemoryAudit, nothing_to_check
from tests.builders.ledger import PARTITION, MemoryLedger, metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

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


async def test_a_topic_of_which_a_deletion_is_recorded_is_not_enabled() -> None:
    service = await enabled(Cluster())
    service.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
    with pytest.raises(Fenced, match="is being deleted"):
        await service.verbs.enable(TOPIC, TIER)


@pytest.mark.parametrize("cause", ["gone", "purge"])
async def test_h07_disable_revokes_the_deletion_of_a_gone_topics_remote_data(cause: str) -> None:
    service = await enabled(Cluster())
    deleting = replace(record_of(service), state="deleting", deletion_cause=cause)
    await service.settings.publish(deleting, service.cluster.epoch)
    service.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
    service.cluster.delete()
    outcome = await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert (outcome.record.state, outcome.record.deletion_cause) == ("kept", "")
    assert record_of(service).state == "kept"


async def test_disable_delete_shows_first_what_it_deletes() -> None:
    service = await enabled(Cluster(configs={TOPIC: {"retention.ms": "60000"}}))
    before = record_of(service)
    service.ledger.copied(metadata(1, 0, 100, {0: 0}), metadata(2, 90, 150, {0: 0}))
    words = r"orders: 150 records in 2 segments, 2 B, from 1970-01-01 .*--yes"
    with pytest.raises(Fenced, match=words):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=True)
    assert record_of(service) == before
    outcome = await service.verbs.disable(TOPIC, confirm=True, delete_remote=True)
    assert "150 records" in outcome.warnings[0]
    assert (outcome.record.state, outcome.record.deletion_cause) == ("deleting", "disable")
    assert (outcome.record.trim, outcome.record.mode) == (False, "copy")
    assert service.cluster.own_config() == {"retention.ms": "60000"}, "it is given back at once"
    with pytest.raises(Fenced, match="is being deleted"):
        await service.verbs.enable(TOPIC, TIER)
    kept = await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert (kept.record.state, kept.record.deletion_cause) == ("kept", "")
    await service.verbs.enable(TOPIC, replace(TIER, yes=True))


async def test_disable_delete_of_a_deleted_topic_says_what_to_call() -> None:
    service = await enabled(Cluster())
    service.cluster.delete()
    with pytest.raises(NotFound, match="rlm purge"):
        await service.verbs.disable(TOPIC, confirm=True, delete_remote=True)
    assert record_of(service).state == "enabled"


async def test_the_remote_logs_of_a_topic_end_where_the_brokers_logs_begin() -> None:
    cluster = Cluster(log_starts={0: 100, 1: 0})
    service = await enabled(cluster)
    cluster.log_starts = {0: 170, 1: 30}
    audit = MemoryAudit()
    starts = LocalStarts(
        broker=service.broker,
        settings=service.settings,
        offsets=service.broker,
        starts=LogStarts(settings=service.settings, audit=audit, barrier_deadline_ms=1_000),
    )
    await starts.raise_starts(record_of(service), nothing_to_check)
    assert audit.starts == [170, 30]
    assert set(audit.start_causes) == {"command: disable --delete"}
    view = service.settings.view
    assert [view.remote_log_start(PartitionKey(TOPIC_ID, one)) for one in (0, 1)] == [170, 30]
    adopted = view.get(f"start/{TOPIC_ID}/0")
    assert adopted is not None and isinstance(adopted.record, StartRecord)
    assert adopted.record.cause == "command: disable --delete"
    assert adopted.record.decided_epoch == cluster.epoch
    cluster.recreate(Uuid(bytes(range(50, 66))))
    with pytest.raises(NotFound):
        await starts.raise_starts(record_of(service), nothing_to_check)


async def test_h07_a_deletion_that_has_begun_is_not_revoked() -> None:
    service = await enabled(Cluster())
    deleting = replace(record_of(service), state="deleting", deletion_cause="gone")
    await service.settings.publish(deleting, service.cluster.epoch)
    service.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
    service.cluster.delete()
    with pytest.raises(Fenced, match="has begun"):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert record_of(service) == deleting


async def _deleting_a_discarded_partition(
    state: RemotePartitionDeleteState, *copies: RemoteLogSegmentMetadata
) -> ServiceUnderTest:
    """`topics disable --delete` was decided of a topic whose partition 0 was discarded, and of that
    partition the deletion has come so far.
    """
    service = await enabled(Cluster())
    service.ledger.copied(*copies)
    deleting = replace(record_of(service), state="deleting", deletion_cause="disable")
    await service.settings.publish(deleting, service.cluster.epoch)
    service.ledger.delete_partition(state)
    discard = DiscardRecord(
        partition=PARTITION.key,
        by="ada",
        why="orphans",
        epoch=0,
        last_epoch=-1,
        offset=0,
        delay_ms=0,
        decided_ms=0,
    )
    await service.settings.publish(discard, service.cluster.epoch)
    return service


IN_PARTITION_1 = replace(
    metadata(7, 0, 100, {0: 0}),
    segment_id=RemoteLogSegmentId(
        topic_id_partition=replace(PARTITION, partition=1), id=Uuid(b"\x07" * 16)
    ),
)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_h07_what_a_discard_deletes_does_not_keep_a_topics_deletion_from_being_revoked(
    has_begun: bool,
) -> None:
    """Of another partition nothing is deleted yet; what is not kept is named."""
    state = RemotePartitionDeleteState(int(has_begun))
    service = await _deleting_a_discarded_partition(state, IN_PARTITION_1)
    outcome = await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert record_of(service).state == "kept"
    named = "partition 0: ada has discarded it, and its remote data is being deleted or is gone"
    assert (named in " ".join(outcome.warnings)) is has_begun


@pytest.mark.parametrize(
    ("state", "copies"),
    [
        (RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, ()),
        (RemotePartitionDeleteState.DELETE_PARTITION_STARTED, (metadata(1, 0, 100, {0: 0}),)),
    ],
    ids=["all is deleted", "a part is deleted"],
)
async def test_h07_nobody_is_answered_that_deleted_partitions_are_kept(
    state: RemotePartitionDeleteState, copies: tuple[RemoteLogSegmentMetadata, ...]
) -> None:
    """The end of the topic has deleted its only partition, which had been discarded before."""
    service = await _deleting_a_discarded_partition(state, *copies)
    with pytest.raises(Fenced, match="has begun"):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert record_of(service).state == "deleting"


async def test_h07_whether_a_deletion_has_begun_is_read_to_a_barrier() -> None:
    service = await enabled(Cluster())
    deleting = replace(record_of(service), state="deleting", deletion_cause="disable")
    await service.settings.publish(deleting, service.cluster.epoch)
    service.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
    service.ledger.on_barrier = lambda: service.ledger.delete_partition(
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED
    )
    with pytest.raises(Fenced, match="has begun"):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert record_of(service) == deleting


async def _kept_while(meanwhile: Callable[[MemoryLedger], None]) -> ServiceUnderTest:
    """What is to be deleted is kept, and another service acts between the first reading of the
    ledger and the record.
    """
    service = await enabled(Cluster())
    ledger = service.ledger
    ledger.copied(metadata(1, 0, 100, {0: 0}))
    deleting = replace(record_of(service), state="deleting", deletion_cause="disable")
    await service.settings.publish(deleting, service.cluster.epoch)
    ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)

    def act() -> None:
        if record_of(service).state == "kept":
            meanwhile(ledger)

    ledger.on_barrier = act
    await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    return service


async def test_h07_what_is_kept_before_anything_begins_is_whole() -> None:
    service = await _kept_while(lambda _: None)
    assert record_of(service).state == "kept"


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda one: one.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_STARTED),
        lambda one: one.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED),
        lambda one: one.write(None, segment_id=metadata(1, 0, 100, {0: 0}).segment_id, previous=3),
    ],
    ids=["it began", "it is over", "its record is removed again"],
)
async def test_h07_no_answer_says_that_all_is_kept_where_the_deletion_began_meanwhile(
    meanwhile: Callable[[MemoryLedger], None],
) -> None:
    with pytest.raises(Fenced, match="has begun meanwhile: a part may be gone"):
        await _kept_while(meanwhile)


async def test_whether_a_deletion_is_recorded_is_read_to_a_barrier_before_a_topic_is_enabled() -> (
    None
):
    service = await enabled(Cluster())
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    service.ledger.on_barrier = lambda: service.ledger.delete_partition(
        RemotePartitionDeleteState.DELETE_PARTITION_STARTED
    )
    with pytest.raises(Fenced, match="is being deleted"):
        await service.verbs.enable(TOPIC, TIER)
    assert record_of(service).state == "kept"


async def test_h39_what_a_former_topic_left_is_kept_by_its_id_while_another_has_its_name() -> None:
    service = await enabled(Cluster())
    gone = replace(record_of(service), state="deleting", deletion_cause="gone")
    await service.settings.publish(gone, service.cluster.epoch)
    service.cluster.recreate(Uuid(bytes(range(50, 66))))
    await service.verbs.enable(TOPIC, TIER)
    outcome = await service.verbs.disable(str(TOPIC_ID), confirm=False, delete_remote=False)
    assert (outcome.record.topic_id, outcome.record.state) == (TOPIC_ID, "kept")
    assert record_of(service).state == "kept"
    present = service.settings.view.topic(Uuid(bytes(range(50, 66))))
    assert present is not None and present.state == "enabled"
    with pytest.raises(NotFound):
        await service.verbs.disable(str(present.topic_id), confirm=True, delete_remote=False)
    assert service.settings.view.topic(present.topic_id) == present


async def test_h07_nothing_is_given_back_to_a_topic_that_seems_to_be_deleted() -> None:
    """If it is there after all, its broker would delete what is not copied yet."""
    service = await enabled(Cluster(configs={TOPIC: {"retention.ms": "60000"}}))
    before = service.cluster.own_config()
    gone = replace(record_of(service), state="deleting", deletion_cause="gone")
    await service.settings.publish(gone, service.cluster.epoch)
    await service.repair()
    assert service.cluster.own_config() == before
    assert record_of(service) == gone


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
