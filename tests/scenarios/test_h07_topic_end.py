"""H7 on real brokers: the remote data of a deleted topic goes; without evidence nothing does."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemotePartitionDeleteState
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from rlmm.topic import SETTINGS_TOPIC
from tests.sandbox_fixtures import with_workers
from tests.scenarios.authorizer import OVERRIDES, SUPER_USER, SecuredCluster, of_tier
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.eventually import comes_to
from tests.scenarios.ledger_reader import LedgerReader
from tests.scenarios.objects import audited, finished_segments, names_of, objects_of
from tests.scenarios.raw import connection, topic_id

pytestmark = pytest.mark.integration

_LIMIT_S = 120
QUICK = tuple(
    Override.parse(text)
    for text in (
        "rlm.topic.deletion.grace.ms=2000",
        "rlm.topic.deletion.max.share.percent=100",
        "rlm.retention.check.interval.ms=500",
        "rlm.remote.delete.delay.ms=4000",
    )
)


@pytest.fixture(
    scope="module", params=[1, pytest.param(3, marks=pytest.mark.long)], ids=["one", "three"]
)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """With an authorizer that allows everything until the last test here closes the cluster."""
    spec = SandboxSpec(
        brokers=request.param, jvm="quick", heap_mib=256, overrides=(*OVERRIDES, *QUICK)
    )
    up = Sandbox.up(tmp_path_factory.mktemp("quick"), with_workers(spec))
    try:
        yield up
    finally:
        up.down(delete=True)


@pytest.fixture
def quick(made: Sandbox) -> Iterator[Cluster]:
    with Cluster(made, SUPER_USER) as cluster:
        yield cluster


def topic_id_of(cluster: Cluster, topic: str) -> Uuid:
    return Uuid.parse(cluster.rlm_json("topics", "describe", topic)["topic_id"])


def settings_of(cluster: Cluster, topic_id: Uuid) -> list[str]:
    """Keys of the settings records of a topic, by a consumer of its own."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.direct,
            "group.id": fresh("settings"),
            "enable.auto.commit": False,
        }
    )
    newest: dict[str, bool] = {}
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(SETTINGS_TOPIC, 0), timeout=_LIMIT_S
        )
        consumer.assign([TopicPartition(SETTINGS_TOPIC, 0, low)])
        while True:
            (position,) = consumer.position([TopicPartition(SETTINGS_TOPIC, 0)])
            if position.offset >= high:
                break
            message = consumer.poll(_LIMIT_S)
            assert message is not None and message.error() is None
            key = message.key()
            assert key is not None
            newest[key.decode()] = message.value() is not None
    finally:
        consumer.close()
    return [key for key, is_there in newest.items() if is_there and str(topic_id) in key]


def create_again(cluster: Cluster, topic: str, old: Uuid) -> None:
    """Returns when the broker knows the new topic and not the old one any more."""

    async def present_id() -> bytes:
        async with connection(cluster.direct) as client:
            return await topic_id(client, topic)

    def created() -> bool:
        try:
            cluster.create_topic(topic)
        except KafkaException:
            return False
        return True

    cluster.wait_for(created, f"{topic} recreated")
    unknown = (old.raw, bytes(16))
    cluster.wait_for(lambda: asyncio.run(present_id()) not in unknown, f"the new {topic} is known")


@pytest.mark.kafka_scenario("DeleteTopic")
def test_h07_all_that_is_remote_of_a_deleted_topic_goes(quick: Cluster) -> None:
    topic = fresh("ends")
    quick.create_topic(topic, partitions=2)
    quick.enable(topic)
    quick.fill(topic, mib=3, partition=1)
    quick.fill(topic, mib=4)
    for partition in (0, 1):
        quick.wait_trimmed(topic, partition)
    old = topic_id_of(quick, topic)
    objects = objects_of(quick)
    assert any(str(old) in name for name in names_of(objects, topic))
    assert settings_of(quick, old)
    for partition in (0, 1):
        quick.wait_copied(topic, partition)
    segments = {str(one.segment_id.id) for one in finished_segments(quick, topic)}

    quick.admin.delete_topics([topic])[topic].result(_LIMIT_S)
    create_again(quick, topic, old)
    quick.rlm("topics", "enable", topic, "--trim", "--local-retention-bytes", "1048576")
    rows = quick.fill(topic, mib=4)
    quick.wait_trimmed(topic)
    new = topic_id_of(quick, topic)
    assert new != old

    quick.wait_for(lambda: not settings_of(quick, old), "the settings of the old topic are gone")
    names = names_of(objects, topic)
    assert not [name for name in names if str(old) in name]
    assert [name for name in names if str(new) in name]
    deleted = [line["segment_id"] for line in audited(quick, str(old)) if "segment_id" in line]
    assert set(deleted) == segments
    assert not [line for line in audited(quick, str(new)) if "segment_id" in line]
    ledger, keys = LedgerReader(quick), [PartitionKey(old, 0), PartitionKey(old, 1)]
    try:

        def ended() -> bool:
            ledger.read()
            return [ledger.deletions.get(key, [])[-1:] for key in keys] == [[None], [None]]

        quick.wait_for(ended, "the partition-delete records are gone")
        assert ledger.of(old) == []
        steps = [*RemotePartitionDeleteState, None]
        assert ledger.deletions == dict.fromkeys(keys, steps)
        assert ledger.of(new) != []
    finally:
        ledger.close()
    assert_same(quick.read_all(topic), rows)
    rows_of_topics: list[dict[str, str]] = []

    def is_one() -> bool:
        """The service may read later than we that the old one is gone."""
        rows_of_topics[:] = quick.rlm_json("topics", "list")["topics"]
        return len(rows_of_topics) == 1

    quick.wait_for(is_one, "only the new topic is listed")
    (row,) = rows_of_topics
    assert (row["topic_id"], row["state"]) == (str(new), "enabled")


def test_h07_a_topic_whose_data_is_kept_ends_by_purge(quick: Cluster) -> None:
    topic = fresh("kept")
    quick.create_topic(topic)
    quick.enable(topic)
    quick.fill(topic, mib=3)
    quick.wait_trimmed(topic)
    topic_id = topic_id_of(quick, topic)
    quick.rlm("topics", "disable", topic, "--confirm")
    quick.admin.delete_topics([topic])[topic].result(_LIMIT_S)

    def listed() -> list[dict[str, str]]:
        rows = quick.rlm_json("purge").get("topics", [])
        return [row for row in rows if row["topic_id"] == str(topic_id)]

    quick.wait_for(lambda: bool(listed()), "the deleted topic is listed")
    assert listed()[0]["state"] == "kept"
    assert names_of(objects_of(quick), topic)

    comes_to(quick, ("purge", topic, "--confirm"))  # once the grace is over
    quick.wait_for(lambda: not settings_of(quick, topic_id), "the settings of the topic are gone")
    assert names_of(objects_of(quick), topic) == []
    quick.wait_for(lambda: listed() == [], "the service has read that, too")


@pytest.mark.kafka_scenario("DisableRemoteLogOnTopic")
def test_disable_delete_ends_the_remote_log_and_keeps_the_topic(quick: Cluster) -> None:
    topic = fresh("ended")
    quick.create_topic(topic)
    originals = quick.topic_config(topic)
    quick.enable(topic)
    rows = quick.fill(topic, mib=4)
    quick.wait_trimmed(topic)
    topic_id = topic_id_of(quick, topic)
    said = quick.rlm("topics", "disable", topic, "--delete", check=False)
    assert said.returncode == 1 and "--yes" in said.stderr and "records in" in said.stderr
    quick.rlm("freeze", topic)  # these commands may take longer than the sandbox's short delay
    quick.rlm("topics", "disable", topic, "--delete", "--yes")
    assert_same(quick.read_all(topic), rows)
    quick.wait_for(lambda: quick.topic_config(topic) == originals, "the topic's own settings")
    refused = quick.rlm("topics", "enable", topic, check=False)
    assert refused.returncode == 1 and "is being deleted" in refused.stderr
    quick.rlm("topics", "disable", topic)
    quick.rlm("unfreeze", topic)
    quick.rlm("topics", "disable", topic, "--delete", "--yes")

    quick.wait_for(lambda: not settings_of(quick, topic_id), "the settings of the topic are gone")
    assert names_of(objects_of(quick), topic) == []
    start = quick.log_start(topic)
    assert 0 < start < len(rows)
    assert_same(quick.read_all(topic, start={0: start}), rows[start:])

    comes_to(quick, ("topics", "enable", topic))  # it can be enabled again
    quick.wait_copied(topic)
    assert_same(quick.read_all(topic, start={0: start}), rows[start:])


@pytest.fixture
def secured(made: Sandbox) -> Iterator[SecuredCluster]:
    with SecuredCluster(made, SUPER_USER) as cluster:
        cluster.close_cluster()
        for row in cluster.rlm_json("topics", "list")["topics"]:
            cluster.grant(*of_tier(row["topic"]))
        yield cluster


def test_h07_topics_that_we_may_not_see_any_more_are_not_deleted(secured: SecuredCluster) -> None:
    topic = fresh("hidden")
    secured.create_topic(topic)
    secured.grant(*of_tier(topic))
    secured.enable(topic)
    rows = secured.fill(topic, mib=4)
    secured.wait_all_within(topic, beyond=0)
    secured.wait_copied(topic)
    before = set(names_of(objects_of(secured), topic))
    rights = of_tier(topic)
    secured.take_away(*(acl for acl in rights if acl.operation != "Describe"))
    secured.take_away(*(acl for acl in rights if acl.operation == "Describe"))
    # Another topic is deleted meanwhile: when its data is gone, this one had the same chance.
    other = fresh("other")
    secured.create_topic(other)
    secured.grant(*of_tier(other))
    secured.enable(other)
    secured.fill(other, mib=3)
    secured.wait_all_within(other, beyond=0)
    secured.admin.delete_topics([other])[other].result(_LIMIT_S)
    secured.wait_for(lambda: names_of(objects_of(secured), other) == [], f"{other} is gone")
    assert before and before <= set(names_of(objects_of(secured), topic)), "copying may go on"
    assert topic not in [row["topic"] for row in secured.rlm_json("purge").get("topics", [])]
    secured.grant(*rights)
    secured.wait_for(lambda: not any(map(secured.problems, secured.nodes)), "no problem")
    assert_same(secured.read_all(topic), rows)
