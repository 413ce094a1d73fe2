"""H39: a topic is its id; one recreated under an enabled name is another, and reported."""

from dataclasses import replace

import pytest

from kip405.acls import topic_acl
from kip405.errors import NotFound
from kip405.ids import PartitionKey, Uuid
from rlm.plans.problems import ProblemKind
from rlm.topics.keeper import RecreatedTopicWatch
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import TopicRecord
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

NEW_ID = Uuid(bytes(range(100, 116)))
NEWER_ID = Uuid(bytes(range(50, 66)))
TIER = EnableOptions(
    trim=True, retention=RetentionOptions(retention_ms=1_000, local_retention_ms=5)
)


def watch_of(service: ServiceUnderTest, reenable: str) -> RecreatedTopicWatch:
    return RecreatedTopicWatch(
        verbs=service.verbs,
        broker=service.broker,
        settings=service.settings,
        clock=service.clock,
        interval_ms=1_000,
        reenable=reenable,
    )


async def recreated(
    reenable: str, options: EnableOptions = TIER
) -> tuple[Cluster, ServiceUnderTest, RecreatedTopicWatch]:
    cluster = Cluster(log_starts={0: 40}, ends={0: 100})
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, options)
    watch = watch_of(service, reenable)
    await watch.check()
    assert watch.findings() == ()
    cluster.delete()
    await watch.check()
    assert watch.findings() == (), "nothing is recreated yet"
    cluster.recreate(NEW_ID)
    return cluster, service, watch


def record_of(cluster: Cluster, topic_id: Uuid) -> TopicRecord:
    record = cluster.record(topic_id)
    assert record is not None
    return record


async def test_h39_the_new_topic_is_a_problem_with_both_ids_until_it_is_enabled() -> None:
    cluster, service, watch = await recreated("ask")
    await watch.check()
    (finding,) = watch.findings()
    assert (finding.kind, finding.topic) == (ProblemKind.TOPIC_RECREATED, TOPIC)
    for words in (str(TOPIC_ID), str(NEW_ID), f"rlm topics enable {TOPIC}", "not tiered"):
        assert words in finding.text
    assert cluster.own_config() == {}
    outcome = await service.verbs.enable(TOPIC, EnableOptions())
    assert str(TOPIC_ID) in outcome.warnings[0]
    assert watch.findings() == ()


async def test_h39_what_was_seen_before_is_not_taken_back_while_the_broker_is_silent() -> None:
    cluster, _, watch = await recreated("ask")
    await watch.check()
    cluster.is_down = True
    await watch.check()
    assert len(watch.findings()) == 1


async def test_h40_a_topic_that_may_not_be_seen_stays_as_it_was_seen() -> None:
    cluster, _, watch = await recreated("ask")
    await watch.check()
    cluster.denied = {(1, topic_acl("Describe", TOPIC))}
    cluster.delete()
    await watch.check()
    assert len(watch.findings()) == 1


@pytest.mark.parametrize("exists", [True, False])
async def test_h39_disable_ends_what_is_expected_of_the_one_that_is_gone(exists: bool) -> None:
    cluster, service, watch = await recreated("ask")
    if not exists:
        cluster.delete()
    outcome = await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert (outcome.record.topic_id, outcome.record.state) == (TOPIC_ID, "kept")
    assert str(TOPIC_ID) in outcome.warnings[0]
    record = record_of(cluster, TOPIC_ID)
    assert (record.state, record.trim) == ("kept", False)
    assert record.originals, "should the broker merely not know the topic, they are given back"
    await watch.check()
    assert watch.findings() == ()
    with pytest.raises(NotFound):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)


async def test_h39_a_broker_that_did_not_know_the_topic_yet_gets_its_retention_back() -> None:
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    config = cluster.configs.pop(TOPIC)
    await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    cluster.configs[TOPIC] = config
    await service.repair()
    assert cluster.own_config() == {"retention.ms": "60000"}


async def test_h39_same_name_enables_the_new_one_alike_and_never_merges_histories() -> None:
    cluster, service, watch = await recreated("same-name")
    old = record_of(cluster, TOPIC_ID)
    await watch.check()
    new = record_of(cluster, NEW_ID)
    assert (new.mode, new.trim, new.state) == ("tier", True, "enabled")
    assert (new.retention_ms, new.local_retention_ms) == (1_000, 5)
    assert record_of(cluster, TOPIC_ID) == old
    view = service.settings.view
    assert view.remote_log_start(PartitionKey(NEW_ID, 0)) == 0
    assert view.remote_log_start(PartitionKey(TOPIC_ID, 0)) == 40
    assert cluster.own_config() == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert watch.findings() == ()
    assert len([key for key, _, _ in cluster.records if key == new.key.encode()]) == 1
    await watch.check()
    assert len([key for key, _, _ in cluster.records if key == new.key.encode()]) == 1


async def test_h39_same_name_keeps_mode_tier_with_trim_off() -> None:
    cluster, service, watch = await recreated("same-name")
    await watch.check()
    await service.verbs.trim_off(TOPIC, giveback=False)
    cluster.recreate(NEWER_ID)
    await watch.check()
    newest = record_of(cluster, NEWER_ID)
    assert (newest.mode, newest.trim) == ("tier", False)


async def test_h39_same_name_keeps_the_mode_of_one_that_is_about_to_be_deleted() -> None:
    cluster, service, watch = await recreated("same-name")
    await watch.check()
    await service.verbs.trim_off(TOPIC, giveback=False)
    gone = replace(record_of(cluster, NEW_ID), state="deleting", deletion_cause="gone")
    await service.settings.publish(gone, cluster.epoch)
    cluster.recreate(NEWER_ID)
    await watch.check()
    newest = record_of(cluster, NEWER_ID)
    assert (newest.state, newest.mode, newest.trim) == ("enabled", "tier", False)


async def test_h39_same_name_proves_its_rights_first_and_says_why_it_could_not() -> None:
    cluster, _, watch = await recreated("same-name")
    cluster.denied = {(1, topic_acl("Delete", TOPIC))}
    alters = len(cluster.alters)
    await watch.check()
    await watch.check()
    assert cluster.record(NEW_ID) is None
    assert len(cluster.alters) == alters
    (finding,) = watch.findings()
    assert "missing ACL" in finding.text
    cluster.denied = set()
    await watch.check()
    assert record_of(cluster, NEW_ID).trim
    assert watch.findings() == ()


async def test_h39_same_name_does_not_undo_what_was_disabled() -> None:
    cluster, service, watch = await recreated("same-name")
    await watch.check()
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    await watch.check()
    assert record_of(cluster, NEW_ID).state == "kept"
    cluster.recreate(NEWER_ID)
    await watch.check()
    assert cluster.record(NEWER_ID) is None, "the last word about that name was to disable it"
    assert watch.findings() == ()


async def test_h39_only_the_leader_of_partition_0_enables() -> None:
    cluster, _, _ = await recreated("same-name")
    other = ServiceUnderTest(cluster, node_id=2)
    await other.settings.barrier(1)
    watch = watch_of(other, "same-name")
    await watch.check()
    assert cluster.record(NEW_ID) is None
    assert len(watch.findings()) == 1
    assert not watch.why
