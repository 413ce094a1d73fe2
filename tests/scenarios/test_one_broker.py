"""The verbs on topics and quiet polling on a real broker: H14, H19, H20."""

import asyncio
import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from kafka_protocol.apis import FETCH
from tests.rlm.proxy.fakes import asked
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.cluster_state import commit
from tests.scenarios.eventually import json_comes_to
from tests.scenarios.raw import connection, proxy_of

pytestmark = pytest.mark.integration

_RETENTION = ("retention.ms", "retention.bytes")


def _retention(cluster: Cluster, topic: str) -> dict[str, Any]:
    config = cluster.topic_config(topic)
    return {name: config[name] for name in _RETENTION}


def _status(cluster: Cluster, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.rlm_json("status", topic)
    return found


@pytest.mark.kafka_scenario("RemoteTopicCrud")
def test_h14_originals_are_kept_and_given_back(one: Cluster) -> None:
    topic = fresh("originals")
    one.create_topic(topic, configs={"retention.ms": "86400000"})
    whole, before = one.topic_config(topic), _retention(one, topic)
    one.enable(topic)
    taken = _retention(one, topic)
    assert {name: value for name, (value, _) in taken.items()} == dict.fromkeys(_RETENTION, "-1")
    one.fill(topic, mib=3)
    one.wait_trimmed(topic)
    one.rlm("topics", "enable", topic, "--trim", "--local-retention-bytes", "2097152")
    described = one.rlm_json("topics", "describe", topic)
    assert described["originals"] == {"retention.ms": "86400000"}
    off = one.rlm("topics", "trim", topic, "off")
    assert "grow" in off.stdout + off.stderr
    assert _retention(one, topic) == taken
    one.rlm("topics", "trim", topic, "on")
    one.rlm("topics", "trim", topic, "off", "--giveback")
    assert _retention(one, topic) == before
    one.rlm("topics", "trim", topic, "on")
    assert _retention(one, topic) == taken
    refused = one.rlm("topics", "disable", topic, check=False)
    assert refused.returncode != 0
    assert "--confirm" in refused.stderr
    assert _retention(one, topic) == taken
    one.rlm("topics", "disable", topic, "--confirm")
    assert one.topic_config(topic) == whole


def test_h14_a_retention_put_back_by_somebody_is_taken_over_again(one: Cluster) -> None:
    topic = fresh("gitops")
    one.create_topic(topic)
    one.enable(topic)
    taken = _retention(one, topic)
    one.sandbox.pause("rlm:1")  # else it may be earlier than our look
    bounded = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[bounded])
    one.admin.incremental_alter_configs([resource])[resource].result(120)
    one.wait_for(lambda: _retention(one, topic)["retention.ms"][0] == "3600000", "their retention")
    one.sandbox.resume("rlm:1")
    one.wait_for(lambda: _retention(one, topic) == taken, "retention is taken over again")


def test_h19_groups_below_the_first_trim_are_listed(one: Cluster) -> None:
    topic, group = fresh("lagging"), fresh("group")
    one.create_topic(topic)
    one.fill(topic, mib=3)
    commit(one, {"bootstrap.servers": one.direct}, group, topic, 17)
    options = ("topics", "enable", topic, "--trim", "--local-retention-bytes", "1048576")
    refused = one.rlm(*options, check=False)
    assert refused.returncode != 0
    assert group in refused.stderr
    assert "17" in refused.stderr
    assert refused.stderr.count("\n") == 1
    one.rlm("topics", "enable", topic)  # mode copy hurts nobody
    forced = one.rlm(*options, "--force")
    assert group in forced.stderr
    one.wait_trimmed(topic)


def test_h19_a_topic_with_a_share_group_is_refused(one: Cluster) -> None:
    topic, group = fresh("shared"), fresh("share-group")
    one.create_topic(topic)
    one.fill(topic, mib=3)
    one.sandbox.dist.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", one.direct, "--alter", "--entity-type", "groups"),
        *("--entity-name", group, "--add-config", "share.auto.offset.reset=earliest"),
    ).check_returncode()
    said = one.sandbox.dist.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", one.direct, "--topic", topic, "--group", group),
        *("--max-messages", "5", "--timeout-ms", "60000"),
    )
    assert "Processed a total of 5" in said.stdout + said.stderr
    options = ("topics", "enable", topic, "--trim", "--local-retention-bytes", "1048576")
    refused = one.rlm(*options, check=False)
    assert refused.returncode != 0
    assert "share group" in refused.stderr
    assert refused.stderr.count("\n") == 1
    one.rlm(*options, "--force")
    one.wait_copied(topic)
    one.wait_for_expiration_tasks()
    [row] = _status(one, topic)["partitions"]
    assert one.log_start(topic) < 1_024, row["trim_reason"]


def test_a_plan_is_what_is_copied_then_and_events_say_so(one: Cluster) -> None:
    topic = fresh("planned")
    one.create_topic(topic)
    one.fill(topic, mib=3)
    command = ("plan", topic, "--trim", "--local-retention-bytes", "0")
    plan = json_comes_to(
        one, command, lambda found: not found["topics"][0]["partitions"][0]["problem"]
    )
    [row] = plan["topics"][0]["partitions"]
    assert plan["topics"][0]["refusal"] == "", str(plan)
    assert topic not in [each["topic"] for each in one.rlm_json("topics", "list")["topics"]]
    one.rlm("topics", "enable", topic)
    one.wait_copied(topic)
    described = one.rlm_json("topics", "describe", topic)
    assert described["remote_segments"] >= row["segments"] > 0
    assert described["remote_size_bytes"] >= row["size_bytes"] == row["freed_bytes"]
    assert one.rlm_json("plan", topic)["total"]["segments"] == 0
    one.wait_for(lambda: _has_copy_event(one, topic), "the task that has copied has ended")
    assert one.rlm_json("cost", topic)["topics"][topic]["remote_bytes"] > 0
    one.wait_for(lambda: f"{topic}-0" in one.rlm("top", topic, "--once").stdout, "it in top")


def _has_copy_event(cluster: Cluster, topic: str) -> bool:
    events = cluster.rlm_json("events", topic)["events"]
    return any(event["task"] == "copy" and "remote up to" in event["text"] for event in events)


def test_an_operator_sees_where_each_offset_is(one: Cluster) -> None:
    topic, _ = one.trimmed_topic("seen")
    one.wait_copied(topic)
    end = one.log_end(topic)
    old = one.rlm_json("explain", topic, "-p", "0", "0")
    assert (old["location"], old["readable"], old["store"]) == ("remote", True, "default"), str(old)
    [first, *_] = one.rlm_json("segments", topic, "-p", "0")["segments"]
    assert old["segment"]["segment_id"] == first["segment_id"]
    assert first["objects_stem"] in one.rlm("explain", topic, "-p", "0", "0").stdout
    tail = one.rlm_json("explain", topic, "-p", "0", str(end - 1))
    assert (tail["location"], tail["readable"]) == ("local", True), tail
    assert any("only closed segments are" in text for text in tail["sentences"]), tail
    beyond = one.rlm_json("explain", topic, "-p", "0", str(end))
    assert (beyond["location"], beyond["readable"]) == ("beyond-end", False), beyond
    start = one.log_start(topic)  # a trim of what was copied meanwhile may still raise it
    whole = one.rlm_json("explain", topic, "-p", "0")
    assert start <= whole["offsets"]["local_log_start_offset"] <= one.log_start(topic)
    assert (whole["lag_segments"], whole["readable"]) == (0, None)
    one.wait_for(lambda: _verdict(one, topic) == (0, "SAFE"), f"{topic} is safe")


def _verdict(cluster: Cluster, topic: str) -> tuple[int, str]:
    done = cluster.rlm("status", "--health", topic, check=False)
    return done.returncode, done.stdout.partition("\n")[0]


async def test_h20_an_old_partition_that_waits_does_not_make_the_client_spin(one: Cluster) -> None:
    old, tail = fresh("old"), fresh("tails")
    await asyncio.to_thread(one.create_topic, old)
    await asyncio.to_thread(one.create_topic, tail, partitions=9)
    await asyncio.to_thread(one.enable, old)
    await asyncio.to_thread(one.fill, old, mib=3)
    await asyncio.to_thread(one.wait_trimmed, old)
    one.sandbox.pause("plugin:1")
    request = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [
            {"topic": old, "partitions": [asked(0, 0)]},
            {"topic": tail, "partitions": [asked(0, p) for p in range(9)]},
        ],
    }
    async with connection(proxy_of(one, 1)) as client:
        answers, began = 0, time.monotonic()
        while time.monotonic() - began < 4:
            answer = await client.call(FETCH, 11, request)
            answers += 1
            for topic in answer["responses"]:
                for partition in topic["partitions"]:
                    assert (partition["error_code"], partition["records"]) == (0, b"")
        assert answers / (time.monotonic() - began) < 5
        one.sandbox.resume("plugin:1")
        async with asyncio.timeout(120):
            while not (await client.call(FETCH, 11, request))["responses"][0]["partitions"][0][
                "records"
            ]:
                pass


@pytest.mark.long
def test_h20_librdkafka_polls_quietly_too(one: Cluster) -> None:
    old, tail = fresh("old"), fresh("tails")
    one.create_topic(old)
    one.create_topic(tail, partitions=9)
    one.enable(old)
    one.fill(old, mib=3)
    one.wait_trimmed(old)
    fetches: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": one.bootstrap,
            "group.id": fresh("quiet"),
            "auto.offset.reset": "error",
            "statistics.interval.ms": 500,
            "stats_cb": lambda text: fetches.append(_fetch_requests(json.loads(text))),
        }
    )
    one.sandbox.pause("plugin:1")
    topic_partitions = [TopicPartition(old, 0, 0), *(TopicPartition(tail, p, 0) for p in range(9))]
    consumer.assign(topic_partitions)
    began = time.monotonic()
    while time.monotonic() - began < 4:
        message = consumer.poll(0.2)
        assert message is None, message.error()
    asked_for = fetches[-1]
    one.sandbox.resume("plugin:1")
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None
    assert message.offset() == 0
    consumer.close()
    assert asked_for < 5 * 4


def _fetch_requests(statistics: Any) -> int:
    return sum(int(one["req"].get("Fetch", 0)) for one in statistics["brokers"].values())
