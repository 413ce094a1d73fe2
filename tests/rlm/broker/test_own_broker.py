"""Typed calls to our own broker: what goes out, what comes back, which error is which."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import (
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)
from kafka_protocol.apis.offsets import LATEST_TIMESTAMP
from kafka_protocol.schema import Api
from kip405.acls import Acl, MissingAcls, cluster_acl, topic_acl
from kip405.errors import (
    Fenced,
    Internal,
    Invalid,
    NotFound,
    RemoteStorageError,
    Unavailable,
)
from kip405.ids import Uuid
from rlm.broker.answers import OffsetAnswer, OpenTransaction, TopicConfigValue, error_of_code
from rlm.broker.own_broker import OwnBroker
from tests.builders.fake_broker import FakeBroker

TOPIC_ID = bytes(range(16))


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as made:
        yield made


@pytest.fixture
async def own(broker: FakeBroker) -> AsyncIterator[OwnBroker]:
    made = OwnBroker(broker.address, client_id="test", timeout_ms=60_000)
    yield made
    await made.close()


def partition(number: int, *, code: int = 0, leader: int = 1) -> dict[str, Any]:
    return {
        "partition_index": number,
        "error_code": code,
        "leader_id": leader,
        "leader_epoch": 4,
        "replica_nodes": [1, 2],
        "isr_nodes": [1],
    }


def in_topic(row: Mapping[str, Any], **named: str) -> dict[str, Any]:
    return {**(named or {"name": "t"}), "partitions": [row]}


async def test_topics_are_those_that_exist_and_none_is_created(
    broker: FakeBroker, own: OwnBroker
) -> None:
    topics = [
        {"name": "t", "topic_id": TOPIC_ID, "partitions": [partition(0), partition(1, code=5)]},
        {"name": "gone", "error_code": 3},
    ]
    broker.on(METADATA, {"topics": topics})
    (found,) = await own.topics(["t", "gone"])
    assert (found.name, found.topic_id) == ("t", Uuid(TOPIC_ID))
    assert sorted(found.partitions) == [0, 1]
    assert (found.partitions[0].replicas, found.partitions[0].isr) == ((1, 2), (1,))
    (asked,) = broker.asked(METADATA)
    assert not asked["allow_auto_topic_creation"]


async def test_no_names_asks_nothing_and_none_asks_for_all(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(METADATA, {"topics": []})
    assert await own.topics([]) == ()
    assert broker.requests == []
    assert await own.topics() == ()
    assert broker.asked(METADATA)[0]["topics"] is None


async def test_a_topic_that_is_not_there_or_not_ours_to_see(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(METADATA, {"topics": [{"name": "t", "error_code": 3}]})
    with pytest.raises(NotFound, match="'t'"):
        await own.topic("t")
    broker.on(METADATA, {"topics": [{"name": "t", "error_code": 29}]})
    with pytest.raises(
        MissingAcls, match=r"TOPIC_AUTHORIZATION_FAILED .*Describe.*Topic:t"
    ) as error:
        await own.topic("t")
    assert error.value.acls == (topic_acl("Describe", "t"),)


async def test_h07_topic_ids_are_asked_for_by_id_and_answered_in_codes(
    broker: FakeBroker, own: OwnBroker
) -> None:
    other = bytes(range(16, 32))
    topics = [
        {"name": "t", "topic_id": TOPIC_ID, "partitions": [partition(0)]},
        {"name": None, "topic_id": other, "error_code": 100, "partitions": []},
    ]
    nodes = [{"node_id": 7, "host": "h", "port": 1}]
    broker.on(METADATA, {"topics": topics, "brokers": nodes, "cluster_id": "ours"})
    found = await own.topic_ids([Uuid(TOPIC_ID), Uuid(other)])
    assert found.cluster_id == "ours"
    assert found.error_codes == {Uuid(TOPIC_ID): 0, Uuid(other): 100}
    assert found.brokers == {1, 2, 7}
    (asked,) = broker.asked(METADATA)
    assert [(row["name"], bytes(row["topic_id"])) for row in asked["topics"]] == [
        (None, TOPIC_ID),
        (None, other),
    ]
    assert not asked["allow_auto_topic_creation"]


async def test_list_offset_carries_epoch_isolation_and_replica(
    broker: FakeBroker, own: OwnBroker
) -> None:
    row = {"partition_index": 3, "offset": 70, "leader_epoch": 2, "timestamp": 9}
    broker.on(LIST_OFFSETS, {"topics": [in_topic(row)]})
    answer = await own.list_offset(
        "t", 3, LATEST_TIMESTAMP, leader_epoch=6, read_committed=True, replica_id=-2
    )
    assert answer == OffsetAnswer(offset=70, leader_epoch=2, timestamp_ms=9)
    (asked,) = broker.asked(LIST_OFFSETS)
    (sent,) = asked["topics"][0]["partitions"]
    assert (asked["isolation_level"], asked["replica_id"]) == (1, -2)
    assert (sent["current_leader_epoch"], sent["timestamp"]) == (6, -1)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, Fenced),
        (6, Fenced),
        (74, Fenced),
        (75, Fenced),
        (3, NotFound),
        (7, Unavailable),
        (78, Unavailable),
        (56, Unavailable),
        (29, Invalid),
        (44, Invalid),
    ],
)
async def test_error_codes_say_what_to_do(
    broker: FakeBroker, own: OwnBroker, code: int, kind: type[RemoteStorageError]
) -> None:
    row = {"partition_index": 0, "error_code": code}
    broker.on(LIST_OFFSETS, {"topics": [in_topic(row)]})
    with pytest.raises(kind, match=rf"list offsets of t-0: .*\({code}\)"):
        await own.list_offset("t", 0, 5)
    broker.on(DELETE_RECORDS, {"topics": [in_topic(row)]})
    with pytest.raises(kind, match=rf"delete records of t-0 below 40: .*\({code}\)"):
        await own.delete_records("t", 0, 40, timeout_ms=60_000)


def test_an_unknown_code_is_never_taken_for_success() -> None:
    error = error_of_code(9999, "do it", "because", needs=None)
    assert str(error) == "do it: Kafka error (9999): because"
    assert not error.retriable


async def test_delete_records_answers_the_low_watermark(broker: FakeBroker, own: OwnBroker) -> None:
    broker.on(DELETE_RECORDS, {"topics": [in_topic({"partition_index": 0, "low_watermark": 44})]})
    assert await own.delete_records("t", 0, 40, timeout_ms=7_000) == 44
    (asked,) = broker.asked(DELETE_RECORDS)
    assert asked["timeout_ms"] == 7_000
    assert asked["topics"][0]["partitions"][0]["offset"] == 40


async def test_a_held_delete_does_not_hold_up_questions(broker: FakeBroker, own: OwnBroker) -> None:
    may_answer = asyncio.Event()

    async def slowly(_: object) -> Mapping[str, Any]:
        await may_answer.wait()
        return {"topics": [in_topic({"partition_index": 0, "low_watermark": 1})]}

    broker.on(DELETE_RECORDS, slowly)
    broker.on(DESCRIBE_CLUSTER, {"cluster_id": "c", "brokers": []})
    deleting = asyncio.ensure_future(own.delete_records("t", 0, 1, timeout_ms=5_000))
    assert (await own.describe_cluster()).cluster_id == "c"
    assert not deleting.done()
    may_answer.set()
    assert await deleting == 1


async def test_fetch_gives_bytes_positions_and_aborted(broker: FakeBroker, own: OwnBroker) -> None:
    row = {
        "partition_index": 0,
        "high_watermark": 9,
        "last_stable_offset": 8,
        "log_start_offset": 2,
        "records": b"bytes",
        "aborted_transactions": [{"producer_id": 5, "first_offset": 3}],
    }
    broker.on(FETCH, {"responses": [{"topic": "t", "partitions": [row]}]})
    found = await own.fetch("t", 0, 2, max_bytes=77, leader_epoch=4)
    assert (found.records, found.aborted) == (b"bytes", ((5, 3),))
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (9, 8, 2)
    broker.on(FETCH, {"error_code": 56})
    with pytest.raises(Unavailable, match="fetch t-0 at 2"):
        await own.fetch("t", 0, 2, max_bytes=77)


async def test_topic_config_says_what_is_set_on_the_topic(
    broker: FakeBroker, own: OwnBroker
) -> None:
    configs = [
        {"name": "retention.ms", "value": "-1", "config_source": 1},
        {"name": "cleanup.policy", "value": "delete", "config_source": 5},
    ]
    broker.on(DESCRIBE_CONFIGS, {"results": [{"resource_name": "t", "configs": configs}]})
    assert await own.topic_config("t") == {
        "retention.ms": TopicConfigValue(value="-1", is_topic_level=True),
        "cleanup.policy": TopicConfigValue(value="delete", is_topic_level=False),
    }


async def test_h13_the_broker_that_answers_must_be_the_node_asked_for(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(DESCRIBE_CONFIGS, {"results": [{"error_code": 42, "error_message": "not me"}]})
    with pytest.raises(Invalid, match=r"does not answer as node 7.*not me"):
        await own.broker_config(7)
    (asked,) = broker.asked(DESCRIBE_CONFIGS)
    assert (asked["resources"][0]["resource_type"], asked["resources"][0]["resource_name"]) == (
        4,
        "7",
    )


async def test_alter_topic_config_sets_and_unsets_in_one_request(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(INCREMENTAL_ALTER_CONFIGS, {"responses": [{"error_code": 0}]})
    await own.alter_topic_config("t", set_values={"retention.ms": "-1"}, unset=["segment.ms"])
    (asked,) = broker.asked(INCREMENTAL_ALTER_CONFIGS)
    rows = asked["resources"][0]["configs"]
    assert [(row["name"], row["config_operation"], row["value"]) for row in rows] == [
        ("retention.ms", 0, "-1"),
        ("segment.ms", 1, None),
    ]
    broker.on(INCREMENTAL_ALTER_CONFIGS, {"responses": [{"error_code": 44}]})
    with pytest.raises(Invalid, match="POLICY_VIOLATION"):
        await own.alter_topic_config("t", set_values={})


async def test_an_answer_for_nothing_is_an_error(broker: FakeBroker, own: OwnBroker) -> None:
    broker.on(LIST_OFFSETS, {"topics": []})
    broker.on(DESCRIBE_CONFIGS, {"results": []})
    with pytest.raises(Internal):
        await own.list_offset("t", 0, 5)
    with pytest.raises(Internal):
        await own.topic_config("t")
    with pytest.raises(Internal):
        await own.broker_config(1)


def offsets_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Every partition asked for stands at ten times its number; number 7 is led elsewhere."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": row["partition_index"],
                        "error_code": 6 if row["partition_index"] == 7 else 0,
                        "offset": 10 * row["partition_index"] + row["current_leader_epoch"],
                        "timestamp": row["timestamp"],
                    }
                    for row in topic["partitions"]
                ],
            }
            for topic in asked["topics"]
        ]
    }


async def test_offsets_asked_at_the_same_time_go_together_each_with_its_own_answer(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(LIST_OFFSETS, offsets_of)
    asking = [
        own.list_offset(topic, number, LATEST_TIMESTAMP, leader_epoch=3)
        for topic in ("t", "u")
        for number in range(20)
    ]
    found = await asyncio.gather(*asking, return_exceptions=True)
    for at, one in enumerate(found):
        number = at % 20
        if number == 7:
            assert isinstance(one, Fenced), one
        else:
            assert isinstance(one, OffsetAnswer) and one.offset == 10 * number + 3, one
    assert len(broker.asked(LIST_OFFSETS)) <= 2


async def test_a_partition_is_named_once_in_a_request(broker: FakeBroker, own: OwnBroker) -> None:
    """Kafka refuses a ListOffsets that names a partition twice."""
    broker.on(LIST_OFFSETS, offsets_of)
    asked_for = [(epoch, timestamp) for epoch in (1, 2) for timestamp in (-1, -2)]
    found = await asyncio.gather(
        own.list_offset("t", 9, -1),
        *(own.list_offset("t", 1, timestamp, leader_epoch=epoch) for epoch, timestamp in asked_for),
    )
    assert [(one.offset - 10, one.timestamp_ms) for one in found[1:]] == asked_for
    for request in broker.asked(LIST_OFFSETS):
        named = [
            (topic["name"], row["partition_index"])
            for topic in request["topics"]
            for row in topic["partitions"]
        ]
        assert len(named) == len(set(named))


async def test_isolation_and_replica_are_never_mixed(broker: FakeBroker, own: OwnBroker) -> None:
    broker.on(LIST_OFFSETS, offsets_of)
    kinds = [(True, -1), (False, -1), (False, -2)]
    await asyncio.gather(
        *(
            own.list_offset("t", number, -1, read_committed=committed, replica_id=replica)
            for number, (committed, replica) in enumerate(kinds * 2)
        )
    )
    for request in broker.asked(LIST_OFFSETS):
        kind = kinds.index((bool(request["isolation_level"]), request["replica_id"]))
        rows = [
            row["partition_index"] for topic in request["topics"] for row in topic["partitions"]
        ]
        assert {number % 3 for number in rows} == {kind}


async def test_a_topic_that_may_not_be_seen_does_not_affect_others(
    broker: FakeBroker, own: OwnBroker
) -> None:
    def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
        codes = {"t": 0, "hidden": 29, "hidden too": 29, "gone": 3}
        return {
            "topics": [
                {"name": row["name"], "error_code": codes[row["name"]], "topic_id": TOPIC_ID}
                for row in asked["topics"]
            ]
        }

    broker.on(METADATA, answer)
    names = ["t", "t", "hidden", "gone", "t"]
    found = await asyncio.gather(*map(own.topic, names), return_exceptions=True)
    kinds = [type(one) for one in found]
    assert kinds == [kinds[0], kinds[0], MissingAcls, NotFound, kinds[0]]
    assert [one.name for one in found if not isinstance(one, BaseException)] == ["t"] * 3
    with pytest.raises(MissingAcls) as refused:
        await own.topics(["t", "hidden", "hidden too"])
    assert {acl.resource_name for acl in refused.value.acls} == {"hidden", "hidden too"}


async def test_a_snapshot_asks_for_the_configurations_it_needs(
    broker: FakeBroker, own: OwnBroker
) -> None:
    def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "results": [
                {
                    "resource_name": row["resource_name"],
                    "error_code": 3 if row["resource_name"] == "gone" else 0,
                    "configs": [
                        {"name": name, "value": row["resource_name"], "config_source": 5}
                        for name in row["configuration_keys"] or ["all"]
                    ],
                }
                for row in asked["resources"]
            ]
        }

    broker.on(DESCRIBE_CONFIGS, answer)
    names = ("cleanup.policy", "retention.ms")
    t, u, gone, whole = await asyncio.gather(
        own.topic_config("t", names),
        own.topic_config("u", names),
        own.topic_config("gone", names),
        own.topic_config("t"),
        return_exceptions=True,
    )
    value = TopicConfigValue(value="t", is_topic_level=False)
    assert t == dict.fromkeys(names, value)
    assert u == dict.fromkeys(names, TopicConfigValue(value="u", is_topic_level=False))
    assert isinstance(gone, NotFound)
    assert whole == {"all": value}


ACLS = [
    (lambda own: own.topic("t"), METADATA, topic_acl("Describe", "t")),
    (lambda own: own.topic_config("t"), DESCRIBE_CONFIGS, topic_acl("DescribeConfigs", "t")),
    (lambda own: own.broker_config(1), DESCRIBE_CONFIGS, cluster_acl("DescribeConfigs")),
    (lambda own: own.describe_cluster(), DESCRIBE_CLUSTER, cluster_acl("Describe")),
    (lambda own: own.list_offset("t", 0, -1), LIST_OFFSETS, topic_acl("Describe", "t")),
    (lambda own: own.fetch("t", 0, 0, max_bytes=1), FETCH, topic_acl("Read", "t")),
    (
        lambda own: own.delete_records("t", 0, 0, timeout_ms=1_000),
        DELETE_RECORDS,
        topic_acl("Delete", "t"),
    ),
    (
        lambda own: own.alter_topic_config("t", set_values={"a": "b"}),
        INCREMENTAL_ALTER_CONFIGS,
        topic_acl("AlterConfigs", "t"),
    ),
]


def refused(api: Api) -> dict[str, Any]:
    """Every field of an answer in which Kafka says that somebody lacks an ACL."""
    result = {"error_code": 29, "resource_name": "t"}
    in_rows = {"partition_index": 0, "error_code": 29}
    answers: dict[int, dict[str, Any]] = {
        METADATA.key: {"topics": [{"name": "t", "error_code": 29}]},
        DESCRIBE_CLUSTER.key: {"error_code": 31},
        DESCRIBE_CONFIGS.key: {"results": [result]},
        INCREMENTAL_ALTER_CONFIGS.key: {"responses": [result]},
        FETCH.key: {"responses": [in_topic(in_rows, topic="t")]},
        OFFSET_FOR_LEADER_EPOCH.key: {
            "topics": [in_topic({"partition": 0, "error_code": 29}, topic="t")]
        },
    }
    return answers.get(api.key, {"topics": [in_topic(in_rows)]})


@pytest.mark.parametrize(("call", "api", "acl"), ACLS, ids=[str(row[2]) for row in ACLS])
async def test_h40_each_call_names_the_acl_that_it_lacks(
    broker: FakeBroker,
    own: OwnBroker,
    call: Callable[[OwnBroker], Awaitable[object]],
    api: Api,
    acl: Acl,
) -> None:
    broker.on(api, refused(api))
    with pytest.raises(MissingAcls) as error:
        await call(own)
    assert error.value.acls == (acl,)
    assert str(acl) in str(error.value)


def producers(*start_offsets: int, code: int = 0) -> dict[str, Any]:
    active = [
        {
            "producer_id": 4_000 + number,
            "producer_epoch": 3,
            "last_sequence": 9,
            "last_timestamp": 77,
            "coordinator_epoch": 1,
            "current_txn_start_offset": start_offset,
        }
        for number, start_offset in enumerate(start_offsets)
    ]
    row = {"partition_index": 2, "error_code": code, "active_producers": active}
    return {"throttle_time_ms": 0, "topics": [{"name": "orders", "partitions": [row]}]}


async def test_h18_producers_without_an_open_transaction_are_left_out(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(DESCRIBE_PRODUCERS, producers(-1, 0))
    expected = OpenTransaction(
        producer_id=4_001, producer_epoch=3, start_offset=0, last_timestamp_ms=77
    )
    assert await own.open_transactions("orders", 2) == (expected,)
    asked = {"topics": [{"name": "orders", "partition_indexes": [2]}]}
    assert broker.asked(DESCRIBE_PRODUCERS) == [asked]


async def test_h40_producers_need_the_right_to_read(broker: FakeBroker, own: OwnBroker) -> None:
    broker.on(DESCRIBE_PRODUCERS, producers(code=29))
    with pytest.raises(MissingAcls) as raised:
        await own.open_transactions("orders", 2)
    assert raised.value.acls == (topic_acl("Read", "orders"),)
