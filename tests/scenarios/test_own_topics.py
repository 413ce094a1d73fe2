"""Nobody changes the service's own topics through the proxy of a real broker, and no producer is
disturbed by that: neither an idempotent one, nor one with transactions, nor a request by topic id.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from kafka_protocol.apis import DELETE_TOPICS, PRODUCE, WRITE_TXN_MARKERS
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import WORKERS, Cluster, fresh
from tests.scenarios.raw import PATIENT_MS, Value, at_leader, fetch, topic_id

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("one_broker", ["local", WORKERS], indirect=True),
]

OURS = (LEDGER_TOPIC, SETTINGS_TOPIC)
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
VALUE = b"a value that no service writes"
NEWEST_BY_NAME, BY_ID = 12, 13
_LIMIT_S = 120


def produced(config: dict[str, Any], topics: list[str], *, transactional: bool) -> list[Any]:
    """The error code of each record, None = it was written; in the order of the topics."""
    producer = Producer({"linger.ms": 50, **config})
    codes: dict[int, Any] = {}

    def acknowledged(number: int) -> Callable[[Any, Any], None]:
        return lambda error, _: codes.update({number: error and error.code()})

    if transactional:
        producer.init_transactions(_LIMIT_S)
        producer.begin_transaction()
    for number, topic in enumerate(topics):
        producer.produce(topic, VALUE, partition=0, on_delivery=acknowledged(number))
    assert producer.flush(_LIMIT_S) == 0
    if transactional and set(codes.values()) == {None}:
        producer.commit_transaction(_LIMIT_S)
    return [codes[number] for number in range(len(topics))]


def values_of(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Of all records in the first partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.direct,
            "group.id": fresh("group"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(_LIMIT_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.value())
    finally:
        consumer.close()


def test_producers_are_refused_for_ours_and_go_on_with_others(one: Cluster) -> None:
    topic = fresh("others")
    one.create_topic(topic)
    topics = [topic, LEDGER_TOPIC, topic, SETTINGS_TOPIC, topic] * 20
    idempotent = {"bootstrap.servers": one.bootstrap, "enable.idempotence": True}
    codes = produced(idempotent, topics, transactional=False)
    assert codes == [None if name == topic else REFUSED for name in topics]
    plain = {"bootstrap.servers": one.bootstrap, "acks": 1}
    assert produced(plain, [SETTINGS_TOPIC], transactional=False) == [REFUSED]
    transactional = {"bootstrap.servers": one.bootstrap, "transactional.id": fresh("tx")}
    # The broker would refuse to add the partition to the transaction: the record is not even sent.
    assert produced(transactional, [LEDGER_TOPIC], transactional=True) == [KafkaError._PURGE_QUEUE]
    assert produced(transactional, [topic], transactional=True) == [None]
    for name in OURS:
        assert VALUE not in values_of(one, name)
    end = topics.count(topic) + 2  # with the marker, which the broker writes after it has answered
    one.wait_for(lambda: one.log_end(topic) >= end, f"{topic} ends at {end}")
    assert one.log_end(topic) == end


@pytest.mark.parametrize("version", [3, 7, 9, NEWEST_BY_NAME, BY_ID])
def test_one_request_is_refused_in_part(one: Cluster, version: int) -> None:
    topic = fresh("mixed")
    one.create_topic(topic)
    assert produced({"bootstrap.servers": one.direct}, [topic], transactional=False) == [None]

    async def work(client: RawClient) -> Value:
        batch = (await fetch(client, 12, topic, 0, max_wait_ms=PATIENT_MS))["records"]
        keys: dict[str, Value] = {name: {"name": name} for name in (topic, SETTINGS_TOPIC)}
        if version >= BY_ID:
            keys = {name: {"topic_id": await topic_id(client, name)} for name in keys}
        rows = [{"index": 0, "records": batch}]
        data = [{**keys[name], "partition_data": rows} for name in keys]
        return await client.call(
            PRODUCE, version, {"acks": -1, "timeout_ms": 60_000, "topic_data": data}
        )

    answer = at_leader(one, topic, work)
    found = {
        (row["error_code"], row["index"], row["base_offset"])
        for answered in answer["responses"]
        for row in answered["partition_responses"]
    }
    assert found == {(0, 0, 1), (REFUSED, 0, -1)}


def refused_each(futures: dict[Any, Any]) -> list[int]:
    codes = []
    for future in futures.values():
        with pytest.raises(KafkaException) as raised:
            future.result(_LIMIT_S)
        codes.append(raised.value.args[0].code())
    return codes


def test_topics_of_ours_are_not_changed_and_others_are(one: Cluster) -> None:
    topic = fresh("changed")
    one.create_topic(topic)
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    with AdminClient({"bootstrap.servers": one.bootstrap}) as admin:
        assert refused_each(admin.delete_topics(list(OURS))) == [REFUSED, REFUSED]
        assert refused_each(admin.create_partitions([NewPartitions(OURS[0], 60)])) == [REFUSED]
        ours = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in OURS]
        for resource in ours:
            resource.add_incremental_config(entry)
        assert refused_each(admin.incremental_alter_configs(ours)) == [REFUSED, REFUSED]
        plain = ConfigResource(
            ConfigResource.Type.TOPIC, OURS[1], set_config={"cleanup.policy": "delete"}
        )
        with pytest.warns(DeprecationWarning):
            assert refused_each(admin.alter_configs([plain])) == [REFUSED]
        records = [TopicPartition(name, 0, 1) for name in OURS]
        assert refused_each(admin.delete_records(records)) == [REFUSED, REFUSED]
        other = fresh("made")
        asked = [NewTopic(name, 1, 1) for name in ("__rlm_later", other, OURS[0])]
        made = admin.create_topics(asked)
        made[other].result(_LIMIT_S)
        assert refused_each({name: made[name] for name in made if name != other}) == [REFUSED] * 2
        found = admin.create_partitions([NewPartitions(topic, 2), NewPartitions(OURS[1], 2)])
        found[topic].result(_LIMIT_S)
        assert refused_each({OURS[1]: found[OURS[1]]}) == [REFUSED]
        both = admin.delete_topics([OURS[0], topic])
        both[topic].result(_LIMIT_S)
        assert refused_each({OURS[0]: both[OURS[0]]}) == [REFUSED]
        assert "__rlm_later" not in admin.list_topics(timeout=_LIMIT_S).topics
    assert one.topic_config(OURS[1])["cleanup.policy"][0] == "compact"
    assert one.wait_led(OURS[0]) == one.wait_led(OURS[1]) == 1


def test_a_topic_of_ours_is_not_deleted_by_its_id(one: Cluster) -> None:
    async def work(client: RawClient) -> Value:
        rows = [{"name": None, "topic_id": await topic_id(client, SETTINGS_TOPIC)}]
        return await client.call(DELETE_TOPICS, 6, {"topics": rows, "timeout_ms": 60_000})

    answer = at_leader(one, SETTINGS_TOPIC, work)
    assert [row["error_code"] for row in answer["responses"]] == [REFUSED]
    assert one.wait_led(SETTINGS_TOPIC) == 1


def test_an_administrator_ends_no_transaction_in_ours(one: Cluster) -> None:
    """A marker that no transaction waits for is written all the same, where it may be."""
    topic = fresh("marked")
    one.create_topic(topic)

    async def work(client: RawClient) -> Value:
        rows = [{"name": name, "partition_indexes": [0]} for name in (topic, SETTINGS_TOPIC)]
        marker = {"producer_id": 4_711, "producer_epoch": 0, "topics": rows, "coordinator_epoch": 0}
        return await client.call(WRITE_TXN_MARKERS, 1, {"markers": [marker]})

    answer = at_leader(one, topic, work)
    [marker] = answer["markers"]
    found = {t["name"]: [row["error_code"] for row in t["partitions"]] for t in marker["topics"]}
    assert found == {topic: [0], SETTINGS_TOPIC: [REFUSED]}
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
    assert one.admin.list_offsets(asked)[TopicPartition(topic, 0)].result(_LIMIT_S).offset == 1
