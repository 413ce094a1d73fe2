"""Committed offsets of groups and log starts, asked of fake brokers in Kafka's own bytes (H19)."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    LIST_GROUPS,
    LIST_OFFSETS,
    OFFSET_FETCH,
)
from kafka_protocol.schema import Value
from kip405.errors import Unavailable
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.broker.own_broker import OwnBroker
from rlm.topics.cluster import ClusterGroups, OtherBrokers
from rlm.topics.ports import GroupOffset
from tests.builders.fake_broker import FakeBroker
from tests.builders.log_dir import TOPIC, TOPIC_ID

DESCRIBED = TopicDescription(
    name=TOPIC,
    topic_id=TOPIC_ID,
    internal=False,
    partitions={
        number: PartitionDescription(
            partition=number, leader=leader, leader_epoch=3, replicas=(1, 2), isr=(1, 2)
        )
        for number, leader in ((0, 1), (1, 2), (2, -1))
    },
)
Groups = dict[str, tuple[str, dict[int, int]]]


def answering(broker: FakeBroker, groups: Groups, log_start: int, newest: int = 5) -> None:
    """Groups of this coordinator: name -> (type, partition -> committed offset)."""

    def offsets(body: Value) -> Mapping[str, Any]:
        return {
            "groups": [
                {
                    "group_id": wanted["group_id"],
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {
                                    "partition_index": number,
                                    "committed_offset": groups[wanted["group_id"]][1].get(
                                        number, -1
                                    ),
                                }
                                for number in topic["partition_indexes"]
                            ],
                        }
                        for topic in wanted["topics"]
                    ],
                }
                for wanted in body["groups"]
            ]
        }

    def starts(body: Value) -> Mapping[str, Any]:
        (topic,) = body["topics"]
        (row,) = topic["partitions"]
        answer = {"partition_index": row["partition_index"], "offset": log_start}
        return {"topics": [{"name": topic["name"], "partitions": [answer]}]}

    broker.on(
        API_VERSIONS,
        {"api_keys": [{"api_key": LIST_GROUPS.key, "min_version": 0, "max_version": newest}]},
    )
    listed = [{"group_id": name, "group_type": kind} for name, (kind, _) in groups.items()]
    broker.on(LIST_GROUPS, {"groups": listed})
    broker.on(OFFSET_FETCH, offsets)
    broker.on(LIST_OFFSETS, starts)


@pytest.fixture
async def brokers() -> AsyncIterator[list[FakeBroker]]:
    async with FakeBroker().running() as one, FakeBroker().running() as two:
        rows = [
            {"broker_id": number, "host": broker.address.host, "port": broker.address.port}
            for number, broker in ((1, one), (2, two))
        ]
        one.on(DESCRIBE_CLUSTER, {"cluster_id": "c", "brokers": rows})
        answering(one, {"a": ("classic", {0: 5, 1: 7}), "s": ("share", {})}, 10)
        answering(two, {"b": ("consumer", {1: 9})}, 20)
        yield [one, two]


@pytest.fixture
async def others(brokers: list[FakeBroker]) -> AsyncIterator[OtherBrokers]:
    own = OwnBroker(brokers[0].address, client_id="test")
    found = OtherBrokers(own, client_id="test")
    yield found
    await found.close()
    await own.close()


async def test_h19_groups_of_every_broker_but_share_groups(others: OtherBrokers) -> None:
    assert await ClusterGroups(others).committed(DESCRIBED) == (
        GroupOffset(group="a", partition=0, offset=5),
        GroupOffset(group="a", partition=1, offset=7),
        GroupOffset(group="b", partition=1, offset=9),
    )


async def test_many_groups_are_asked_in_portions(
    brokers: list[FakeBroker], others: OtherBrokers
) -> None:
    many: Groups = {f"g{number}": ("consumer", {0: number}) for number in range(120)}
    answering(brokers[0], many, 10)
    found = await ClusterGroups(others).committed(DESCRIBED)
    assert len(found) == 121
    assert [len(body["groups"]) for body in brokers[0].asked(OFFSET_FETCH)] == [50, 50, 20]


async def test_brokers_without_group_types(brokers: list[FakeBroker], others: OtherBrokers) -> None:
    answering(brokers[0], {"a": ("", {0: 5})}, 10, newest=4)
    found = await ClusterGroups(others).committed(DESCRIBED)
    assert [row.group for row in found] == ["a", "b"]
    versions = {version for name, version, _ in brokers[0].requests if name == "ListGroups"}
    assert versions == {4}


async def test_a_moving_coordinator_is_unavailable(
    brokers: list[FakeBroker], others: OtherBrokers
) -> None:
    brokers[1].on(LIST_GROUPS, {"error_code": 15, "groups": []})
    with pytest.raises(Unavailable, match="coordinator"):
        await ClusterGroups(others).committed(DESCRIBED)


async def test_h02_log_starts_come_from_each_partitions_leader(others: OtherBrokers) -> None:
    assert await others.offset(DESCRIBED, 0, -2) == 10
    assert await others.offset(DESCRIBED, 1, -2) == 20
    with pytest.raises(Unavailable, match="no leader"):
        await others.offset(DESCRIBED, 2, -2)
    with pytest.raises(Unavailable, match="broker 9 is not alive"):
        await others.of(9)
