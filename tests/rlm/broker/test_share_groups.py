"""Start offsets of share groups over a fake broker: what is counted, what is a doubt (H19)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
)
from kafka_protocol.schema import Api, Value
from kip405.acls import MissingAcls, cluster_acl
from kip405.errors import RemoteStorageError, Unavailable
from rlm.broker.share_groups import BrokerShareGroups
from tests.builders.clock import ManualClock
from tests.builders.fake_broker import FakeBroker

MODERN = {LIST_GROUPS.key: 5, DESCRIBE_SHARE_GROUP_OFFSETS.key: 1, 78: 1}
Starts = Mapping[str, Mapping[int, int]]


class Cluster:
    """Brokers that answer for the share groups they coordinate: group -> topic -> partition."""

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = brokers
        self.groups: list[dict[str, Starts]] = [{} for _ in brokers]
        self.versions: list[dict[int, int]] = [dict(MODERN) for _ in brokers]
        self.reset = "latest"
        self.allowed_bits = 1 << 8  # Describe
        self.coordinators: list[dict[str, Any]] = [coordinator(0, 1), coordinator(1, 2)]
        self.clock = ManualClock()
        self.share_groups = BrokerShareGroups(
            brokers[0].address, clock=self.clock, client_id="test"
        )
        for index, broker in enumerate(brokers):
            self._answers_of(index, broker)

    def _answers_of(self, index: int, broker: FakeBroker) -> None:
        broker.on(DESCRIBE_CLUSTER, self._cluster)
        broker.on(METADATA, self._metadata)
        broker.on(API_VERSIONS, lambda _: versions_answer(self.versions[index]))
        broker.on(
            LIST_GROUPS,
            lambda _: {
                "groups": [{"group_id": name, "group_type": "share"} for name in self.groups[index]]
            },
        )
        broker.on(DESCRIBE_SHARE_GROUP_OFFSETS, lambda body: self._offsets(index, body))
        broker.on(DESCRIBE_CONFIGS, self._config)

    def _cluster(self, _: Value) -> Mapping[str, Any]:
        rows = [
            {"broker_id": number, "host": one.address.host, "port": one.address.port}
            for number, one in enumerate(self.brokers, start=1)
        ]
        return {
            "cluster_id": "c",
            "brokers": rows,
            "cluster_authorized_operations": self.allowed_bits,
        }

    def _metadata(self, body: Value) -> Mapping[str, Any]:
        (wanted,) = body["topics"]
        assert wanted["name"] == "__consumer_offsets" and not body["allow_auto_topic_creation"]
        code = 0 if self.coordinators else 3
        topic = {"name": wanted["name"], "error_code": code, "partitions": self.coordinators}
        return {"topics": [topic]}

    def _offsets(self, index: int, body: Value) -> Mapping[str, Any]:
        (wanted,) = body["groups"]
        assert wanted["topics"] is None
        topics = [
            {
                "topic_name": topic,
                "partitions": [
                    {"partition_index": number, "start_offset": start}
                    for number, start in starts.items()
                ],
            }
            for topic, starts in self.groups[index][wanted["group_id"]].items()
        ]
        return {"groups": [{"group_id": wanted["group_id"], "topics": topics}]}

    def _config(self, body: Value) -> Mapping[str, Any]:
        (resource,) = body["resources"]
        assert resource["resource_type"] == 32
        row = {"name": "share.auto.offset.reset", "value": self.reset}
        return {"results": [{"configs": [row]}]}

    def count(self, api: Api) -> int:
        return sum(len(one.asked(api)) for one in self.brokers)


def coordinator(partition: int, leader: int, epoch: int = 0, code: int = 0) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "leader_id": leader,
        "leader_epoch": epoch,
        "error_code": code,
    }


def versions_answer(newest: Mapping[int, int]) -> Mapping[str, Any]:
    return {
        "api_keys": [
            {"api_key": key, "min_version": 0, "max_version": high} for key, high in newest.items()
        ]
    }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with FakeBroker().running() as first, FakeBroker().running() as second:
        yield Cluster([first, second])


async def test_h19_the_lowest_start_of_all_groups_of_all_brokers_counts(cluster: Cluster) -> None:
    cluster.groups[0] = {"a": {"orders": {0: 50, 1: 7}, "other": {0: 1}}}
    cluster.groups[1] = {"b": {"orders": {0: 40}}, "c": {"orders": {0: 60}}}
    assert await cluster.share_groups.start_offset("orders", 0) == 40
    assert await cluster.share_groups.start_offset("orders", 1) == 7
    assert await cluster.share_groups.start_offset("orders", 2) is None
    assert await cluster.share_groups.start_offset("unknown", 0) is None
    assert cluster.count(FIND_COORDINATOR) == 0


async def test_one_round_of_questions_serves_all_for_a_few_seconds(cluster: Cluster) -> None:
    cluster.groups[0] = {"a": {"orders": {0: 50}}}
    for partition in range(10):
        await cluster.share_groups.start_offset("orders", partition)
    assert cluster.count(LIST_GROUPS) == 2
    cluster.groups[0] = {"a": {"orders": {0: 70}}}
    assert await cluster.share_groups.start_offset("orders", 0) == 50
    cluster.clock.advance(5_000)
    assert await cluster.share_groups.start_offset("orders", 0) == 70


async def test_h19_what_cannot_be_undone_asks_again(cluster: Cluster) -> None:
    assert await cluster.share_groups.start_offset("orders", 0) is None
    cluster.groups[0] = {"a": {"orders": {0: 50, 3: 7}, "other": {0: 1}}}
    assert await cluster.share_groups.start_offset("orders", 0) is None
    assert await cluster.share_groups.starts_now("orders") == {0: 50, 3: 7}
    assert await cluster.share_groups.start_offset("orders", 0) == 50


async def test_callers_that_ask_again_at_once_share_the_requests_after_those_in_flight(
    cluster: Cluster,
) -> None:
    ask = cluster.share_groups.starts_now
    under_way = asyncio.ensure_future(ask("orders"))
    await asyncio.sleep(0)
    await asyncio.gather(under_way, *(ask("orders") for _ in range(10)))
    assert cluster.count(LIST_GROUPS) == 2 * len(cluster.brokers)


async def test_h19_a_round_that_was_broken_off_is_no_new_answer(cluster: Cluster) -> None:
    ask = cluster.share_groups.starts_now
    under_way, broken_off, waits = (asyncio.ensure_future(ask("orders")) for _ in range(3))
    await under_way
    cluster.groups[0] = {"a": {"orders": {0: 50}}}
    await asyncio.sleep(0)
    broken_off.cancel()
    assert await waits == {0: 50}


@pytest.mark.parametrize(
    ("reset", "expected"), [("latest", None), ("earliest", 0), ("by_duration:P1D", 0)]
)
async def test_h19_a_group_that_has_not_begun_holds_back_unless_it_begins_at_the_end(
    cluster: Cluster, reset: str, expected: int | None
) -> None:
    cluster.reset = reset
    cluster.groups[1] = {"a": {"orders": {0: -1, 1: 9}}}
    assert await cluster.share_groups.start_offset("orders", 0) == expected
    assert await cluster.share_groups.start_offset("orders", 1) == 9


@pytest.mark.parametrize("old", [{LIST_GROUPS.key: 4}, {LIST_GROUPS.key: 5}, {}])
async def test_brokers_older_than_share_groups_have_none(
    cluster: Cluster, old: dict[int, int]
) -> None:
    cluster.versions = [old, old]
    cluster.groups[0] = {"a": {"orders": {0: 50}}}
    assert await cluster.share_groups.start_offset("orders", 0) is None
    assert cluster.count(LIST_GROUPS) == 0


async def test_a_broker_with_share_groups_that_cannot_list_their_offsets_is_unavailable(
    cluster: Cluster,
) -> None:
    cluster.versions[1] = {LIST_GROUPS.key: 5, 78: 0}
    with pytest.raises(Unavailable, match="cannot list"):
        await cluster.share_groups.start_offset("orders", 0)


async def test_a_cluster_that_never_had_a_group_has_no_share_group(cluster: Cluster) -> None:
    cluster.coordinators = []
    assert await cluster.share_groups.start_offset("orders", 0) is None
    assert cluster.count(LIST_GROUPS) == 0


async def test_h19_groups_of_a_coordinator_without_leader_are_a_doubt(cluster: Cluster) -> None:
    cluster.coordinators[1] = coordinator(1, -1, code=5)
    with pytest.raises(Unavailable, match=r"orders.*__consumer_offsets-1"):
        await cluster.share_groups.start_offset("orders", 0)


async def test_h19_a_coordinator_that_moves_meanwhile_is_a_doubt(cluster: Cluster) -> None:
    def listing(_: Value) -> Mapping[str, Any]:
        cluster.coordinators[0] = coordinator(0, 2, epoch=1)
        return {"groups": []}

    cluster.brokers[1].on(LIST_GROUPS, listing)
    with pytest.raises(Unavailable, match="moved"):
        await cluster.share_groups.start_offset("orders", 0)


ROW = {"partition_index": 0, "start_offset": 5}


@pytest.mark.parametrize(
    ("api", "answer", "kind"),
    [
        (LIST_GROUPS, {"error_code": 14}, Unavailable),
        (API_VERSIONS, {"error_code": 35}, Unavailable),
        (DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"error_code": 16}]}, Unavailable),
        (DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": []}, Unavailable),
        (
            DESCRIBE_SHARE_GROUP_OFFSETS,
            {"groups": [{"topics": [{"partitions": [{**ROW, "error_code": 29}]}]}]},
            MissingAcls,
        ),
    ],
)
async def test_every_error_is_a_doubt_and_is_not_asked_again_at_once(
    cluster: Cluster, api: Api, answer: Mapping[str, Any], kind: type[RemoteStorageError]
) -> None:
    cluster.groups[1] = {"a": {"orders": {0: 50}}}
    working = cluster.brokers[1].handlers[api.key]
    cluster.brokers[1].on(api, answer)
    for _ in range(3):
        with pytest.raises(kind):
            await cluster.share_groups.start_offset("orders", 0)
    assert len(cluster.brokers[1].asked(api)) == 1
    cluster.brokers[1].on(api, working)
    cluster.clock.advance(1_000)
    assert await cluster.share_groups.start_offset("orders", 0) == 50


async def test_a_group_deleted_meanwhile_is_no_doubt(cluster: Cluster) -> None:
    cluster.groups[0] = {"gone": {}}
    cluster.brokers[0].on(DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"error_code": 69}]})
    assert await cluster.share_groups.start_offset("orders", 0) is None


async def test_a_dead_broker_is_a_doubt(cluster: Cluster) -> None:
    cluster.brokers[1].handlers.clear()
    with pytest.raises(Unavailable, match="share groups of orders"):
        await cluster.share_groups.start_offset("orders", 0)


@pytest.mark.parametrize("has_groups", [True, False])
async def test_h40_without_describe_on_the_cluster_groups_are_hidden_and_nothing_is_answered(
    cluster: Cluster, has_groups: bool
) -> None:
    """Brokers then leave groups out of ListGroups without an error; a trim would pass them."""
    if not has_groups:
        cluster.coordinators = []
    cluster.allowed_bits = 0
    for _ in range(2):
        with pytest.raises(MissingAcls) as error:
            await cluster.share_groups.starts_now("orders")
        assert error.value.acls == (cluster_acl("Describe"),)
    cluster.allowed_bits = 1 << 8 | 1 << 5
    assert await cluster.share_groups.starts_now("orders") == {}
