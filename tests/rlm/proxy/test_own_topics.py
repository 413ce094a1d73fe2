"""Nobody changes the service's own topics through the proxy; what else a request has goes on."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_protocol.api_versions import READ_APIS
from kafka_protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    WRITE_TXN_MARKERS,
)
from kafka_protocol.schema import Api
from rlm.proxy.own_topics import PREFIX, OwnTopics
from rlm.service.clients import own_topic_ids
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.rlm.proxy.border import ONE_PROCESS, settled
from tests.rlm.proxy.fakes import (
    IDS,
    OWN,
    OWN_ID,
    PLAIN,
    FakeBroker,
    FakeTier,
    Value,
    World,
    proxied,
    tier_partition,
    world,
)
from tests.rlm.proxy.test_pass_through import ended, settle
from tests.rlmm.builders import uuid
from tests.rlmm.test_metadata_log import Process

REFUSED, NOT_ATTEMPTED = 29, 55
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
PRODUCE_VERSIONS = range(3, PRODUCE.versions.high + 1)
ZERO_ID = bytes(16)


def produce(version: int, *topics: tuple[str, list[int]], acks: int = -1, size: int = 50) -> Value:
    """Some partitions of some topics; each partition with records of its own."""
    rows = []
    for name, indexes in topics:
        key = {"name": name} if version <= 12 else {"topic_id": IDS[name]}
        data = [{"index": one, "records": random.Random(one).randbytes(size)} for one in indexes]
        rows.append({**key, "partition_data": data})
    return {"acks": acks, "timeout_ms": 1_000, "topic_data": rows}


def written(w: World) -> list[tuple[str, int, bytes]]:
    """What the broker was given for partitions that there are."""
    found = []
    for request in w.broker.requests(PRODUCE):
        for topic in request["topic_data"]:
            name = topic["name"] or next(k for k, v in IDS.items() if v == topic["topic_id"])
            rows = topic["partition_data"]
            found += [(name, row["index"], row["records"]) for row in rows if row["index"] >= 0]
    return found


def answered(version: int, answer: Value) -> list[tuple[str, int, int]]:
    names = {raw: name for name, raw in IDS.items()}
    return [
        (
            topic["name"] if version <= 12 else names[topic["topic_id"]],
            row["index"],
            row["error_code"],
        )
        for topic in answer["responses"]
        for row in topic["partition_responses"]
    ]


def test_our_topics_are_known_by_their_names() -> None:
    assert LEDGER_TOPIC.startswith(PREFIX)
    assert SETTINGS_TOPIC.startswith(PREFIX)
    ours = OwnTopics(ids=lambda: frozenset({OWN_ID.raw}))
    for name in (LEDGER_TOPIC, SETTINGS_TOPIC, "__rlm_later"):
        assert ours.has(name, None)
        assert ours.has_named(name.encode())
    assert ours.has(None, OWN_ID.raw)
    assert ours.has_named(OWN_ID.raw)
    for other in ("orders", "_rlm_settings", "x__rlm_settings", "__RLM_settings", "", None):
        assert not ours.has(other, ZERO_ID)


@pytest.mark.parametrize("size", [50, 3_000, 90_000], ids=["short", "searched", "long"])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_produce_is_refused_for_ours_and_goes_on_for_others(version: int, size: int) -> None:
    async with world() as w:
        client = await w.connect()
        request = produce(version, (PLAIN, [0]), (OWN, [0, 7]), (PLAIN, [2]), size=size)
        answer = await client.call(PRODUCE, version, request)
        rows = [(PLAIN, 0, 0), (OWN, 0, REFUSED), (OWN, 7, REFUSED), (PLAIN, 2, 0)]
        assert answered(version, answer) == rows
        assert [one[:2] for one in written(w)] == [(PLAIN, 0), (PLAIN, 2)]
        sent = {(PLAIN, at): random.Random(at).randbytes(size) for at in (0, 2)}
        assert {one[:2]: one[2] for one in written(w)} == sent
        await settle(lambda: w.metrics.outcomes.count(("produce", "own_topic")) == 2)


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_produce_with_acks_0_and_of_a_transaction_is_refused(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        silent = produce(version, (OWN, [0]), (PLAIN, [1]), acks=0)
        client.writer.write(client.encode(PRODUCE, version, silent))
        within = produce(version, (OWN, [0]), (PLAIN, [1])) | {"transactional_id": "tx"}
        answer = await client.call(PRODUCE, version, within)
        assert answered(version, answer) == [(OWN, 0, REFUSED), (PLAIN, 1, 0)]
        assert [one[:2] for one in written(w)] == [(PLAIN, 1), (PLAIN, 1)]


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_produce_byte_by_byte_and_many_at_once() -> None:
    async with world() as w:
        client = await w.connect()
        each = [
            client.encode(PRODUCE, version, produce(version, (OWN, [3]), (PLAIN, [version])))
            for version in PRODUCE_VERSIONS
        ]
        sent = b"".join(each)
        for at in range(0, len(sent), 7):
            client.writer.write(sent[at : at + 7])
            await client.writer.drain()
        for version in PRODUCE_VERSIONS:
            answer = await client.answer(PRODUCE, version)
            assert answered(version, answer) == [(OWN, 3, REFUSED), (PLAIN, version, 0)]
        client.writer.write(sent)
        for version in PRODUCE_VERSIONS:
            await client.answer(PRODUCE, version)
        assert {name for name, _, _ in written(w)} == {PLAIN}


async def test_shutdown_lets_a_long_produce_come_whole() -> None:
    """Its heads lie between records that are passed on unread."""
    async with world(shutdown_timeout_ms=60_000) as w:
        client = await w.connect()
        await client.call(PRODUCE, 9, produce(9, (PLAIN, [0])))
        request = client.encode(PRODUCE, 9, produce(9, (PLAIN, [1, 2, 3]), (OWN, [4]), size=90_000))
        client.writer.write(request[:90_040])  # to the middle of a head or thereabouts
        [connection] = w.proxy.connections
        await settle(lambda: connection.received_bytes >= 90_040)
        closing = asyncio.ensure_future(w.proxy.close())
        await settle(lambda: connection._is_draining)
        client.writer.write(request[90_040:])
        async with asyncio.timeout(60):
            answer = await client.answer(PRODUCE, 9)
            await closing
        assert answered(9, answer)[-1] == (OWN, 4, REFUSED)
        assert [one[1] for one in written(w)] == [0, 1, 2, 3]
        assert w.metrics.causes == ["shutdown"]


async def test_a_damaged_produce_ends_the_connection() -> None:
    async with world() as w:
        client = await w.connect()
        frame = bytearray(client.encode(PRODUCE, 9, produce(9, (OWN, [0]))))
        frame[-1] = 9  # so many tagged fields, of which there are none
        client.writer.write(bytes(frame))
        assert await ended(client)
        await settle(lambda: w.metrics.causes == ["bad_produce"])
        assert written(w) == []


async def test_the_first_refusal_of_a_connection_is_logged() -> None:
    with capture_logs() as logs:
        async with world() as w:
            client = await w.connect()
            for _ in range(3):
                await client.call(PRODUCE, 9, produce(9, (OWN, [0])))
    [line] = [one for one in logs if one["event"] == "own_topics_refused"]
    assert (line["api"], line["log_level"]) == ("Produce", "warning")


async def test_a_topic_of_ours_that_was_recreated_is_refused_by_its_new_id() -> None:
    """As after `rlm ledger rebuild`, while every service still knows the lost one by its id."""
    process, lost = Process(), uuid(1)
    tier = FakeTier(partitions={0: tier_partition()})
    known = own_topic_ids(lambda: process.log.known_topic_ids)
    async with process.running(), proxied(tier, FakeBroker(), own_topic_ids=known) as p:
        await process.log.wait_ready()

        async def write(topic_id: bytes) -> list[int]:
            request = produce(13, (PLAIN, [0]), (PLAIN, [0]))
            request["topic_data"][0]["topic_id"] = topic_id
            answer = await client.call(PRODUCE, 13, request)
            found = [topic["partition_responses"] for topic in answer["responses"]]
            return [row["error_code"] for rows in found for row in rows]

        client = await p.connect()
        assert await write(OWN_ID.raw) == [0, 0]  # nobody has made it ours yet
        assert await write(lost.raw) == [REFUSED, 0]
        process.ids[LEDGER_TOPIC] = OWN_ID
        await process.interval()
        await settled()
        assert await write(OWN_ID.raw) == [REFUSED, 0]
        assert await write(lost.raw) == [REFUSED, 0]  # no topic has this id any more
        assert len(p.broker.requests(PRODUCE)) == 4


def of_delete_topics(version: int, *names: str) -> Value:
    if version <= 5:
        return {"topic_names": list(names), "timeout_ms": 5}
    return {"topics": [{"name": one, "topic_id": ZERO_ID} for one in names], "timeout_ms": 5}


def of_create_topics(_: int, *names: str) -> Value:
    configs = [{"name": "cleanup.policy", "value": "delete"}]
    rows = [{"name": one, "num_partitions": 1, "replication_factor": 1} for one in names]
    return {"topics": [{**one, "assignments": [], "configs": configs} for one in rows]}


def of_create_partitions(_: int, *names: str) -> Value:
    return {"topics": [{"name": one, "count": 9, "assignments": None} for one in names]}


def of_configs(_: int, *names: str) -> Value:
    configs = [{"name": "cleanup.policy", "value": "delete"}]
    topics = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": one, "configs": configs} for one in names
    ]
    other = {"resource_type": BROKER_RESOURCE, "resource_name": OWN, "configs": []}
    return {"resources": [*topics, other]}


CHANGES: list[Any] = [
    pytest.param(api, request, field, version, id=f"{api.name}-v{version}")
    for api, request, field in (
        (CREATE_TOPICS, of_create_topics, "topics"),
        (DELETE_TOPICS, of_delete_topics, "responses"),
        (CREATE_PARTITIONS, of_create_partitions, "results"),
        (ALTER_CONFIGS, of_configs, "responses"),
        (INCREMENTAL_ALTER_CONFIGS, of_configs, "responses"),
    )
    for version in range(api.versions.low, api.versions.high + 1)
]


def names_in(request: Value) -> list[str]:
    """What a request that changes topics names, whichever API it is of."""
    rows = request.get("resources") or request.get("topics") or request["topic_names"]
    return [
        one if isinstance(one, str) else one.get("resource_name") or one.get("name") for one in rows
    ]


def script(w: World, api: Api, field: str) -> None:
    """A broker that does all that it is asked for."""

    def answer(version: int, request: Value) -> Value:
        rows: list[Value] = [{"name": one, "error_code": 0} for one in names_in(request)]
        if "resources" in request:
            rows = [
                {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
                for one in request["resources"]
            ]
        return {field: rows}

    w.broker.script[api.key] = answer


def codes(answer: Value, field: str) -> list[tuple[str, int]]:
    return [(one.get("resource_name") or one["name"], one["error_code"]) for one in answer[field]]


@pytest.mark.parametrize(("api", "request_of", "field", "version"), CHANGES)
async def test_changes_of_our_topics_are_refused_and_others_go_on(
    api: Api, request_of: Callable[..., Value], field: str, version: int
) -> None:
    async with world() as w:
        script(w, api, field)
        client = await w.connect()
        request = request_of(version, PLAIN, LEDGER_TOPIC, SETTINGS_TOPIC, "orders")
        answer = await client.call(api, version, request)
        [asked] = w.broker.requests(api)
        others = [OWN] if request_of is of_configs else []  # a broker's configuration
        assert names_in(asked) == [PLAIN, "orders", *others]
        wanted = [(one, 0) for one in (PLAIN, "orders", *others)]
        refused = [(LEDGER_TOPIC, REFUSED), (SETTINGS_TOPIC, REFUSED)]
        assert codes(answer, field) == wanted + refused
        assert w.metrics.outcomes.count(("topic_changes", "own_topic")) == 2


@pytest.mark.parametrize(("api", "request_of", "field", "version"), CHANGES)
async def test_changes_of_other_topics_pass_as_they_came(
    api: Api, request_of: Callable[..., Value], field: str, version: int
) -> None:
    async with world() as w:
        script(w, api, field)
        client = await w.connect()
        answer = await client.call(api, version, request_of(version, PLAIN))
        assert codes(answer, field)[0] == (PLAIN, 0)
        assert ("topic_changes", "own_topic") not in w.metrics.outcomes


async def test_a_topic_of_ours_is_not_deleted_by_its_id_either() -> None:
    async with world() as w:
        script(w, DELETE_TOPICS, "responses")
        client = await w.connect()
        rows = [{"name": None, "topic_id": one} for one in (OWN_ID.raw, IDS[PLAIN])]
        w.broker.script[DELETE_TOPICS.key] = lambda *_: {
            "responses": [{"name": PLAIN, "topic_id": IDS[PLAIN], "error_code": 0}]
        }
        answer = await client.call(DELETE_TOPICS, 6, {"topics": rows, "timeout_ms": 5})
        [asked] = w.broker.requests(DELETE_TOPICS)
        assert [one["topic_id"] for one in asked["topics"]] == [IDS[PLAIN]]
        found = [(one["topic_id"], one["error_code"]) for one in answer["responses"]]
        assert found == [(IDS[PLAIN], 0), (OWN_ID.raw, REFUSED)]


async def test_delete_records_of_ours_is_refused_and_of_others_goes_on() -> None:
    async with world() as w:
        client = await w.connect()
        rows = [{"partition_index": 0, "offset": 120}]
        request = {"topics": [{"name": one, "partitions": rows} for one in (OWN, PLAIN)]}
        answer = await client.call(DELETE_RECORDS, 2, {**request, "timeout_ms": 5})
        found = {
            topic["name"]: (row["error_code"], row["low_watermark"])
            for topic in answer["topics"]
            for row in topic["partitions"]
        }
        assert found == {OWN: (REFUSED, -1), PLAIN: (0, 120)}
        for asked in w.broker.requests(DELETE_RECORDS):
            assert [topic["name"] for topic in asked["topics"]] == [PLAIN]
        assert ("delete_records", "own_topic") in w.metrics.outcomes


@pytest.mark.parametrize("version", range(ADD_PARTITIONS_TO_TXN.versions.high + 1))
async def test_no_transaction_gets_a_partition_of_ours(version: int) -> None:
    """Its end would write a marker there. As at a broker, it gets none of the others then."""
    async with world() as w:
        is_of_brokers = version >= 4
        row = {"name": PLAIN, "results_by_partition": [{"partition_index": 1}]}

        def shaped(rows: list[Value], fields: tuple[str, str, str]) -> Value:
            """In the shape of the version; for brokers, those of one transaction."""
            of_clients, of_brokers, topics = fields
            if not is_of_brokers:
                return {of_clients: rows}
            return {of_brokers: [{"transactional_id": "tx", topics: rows}]}

        answered = "results_by_topic_v3_and_below", "results_by_transaction", "topic_results"
        w.broker.script[ADD_PARTITIONS_TO_TXN.key] = lambda *_: shaped([row], answered)
        client = await w.connect()

        async def codes_of(**topics: list[int]) -> list[tuple[str, int, int]]:
            rows = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
            request = shaped(rows, ("v3_and_below_topics", "transactions", "topics"))
            answer = await client.call(ADD_PARTITIONS_TO_TXN, version, request)
            found: list[Value] = answer["results_by_topic_v3_and_below"]
            if is_of_brokers:
                [one] = answer["results_by_transaction"]
                found = one["topic_results"]
            return [
                (topic["name"], row["partition_index"], row["partition_error_code"])
                for topic in found
                for row in topic["results_by_partition"]
            ]

        assert await codes_of(**{PLAIN: [1], OWN: [0, 2]}) == [
            (PLAIN, 1, NOT_ATTEMPTED),
            (OWN, 0, REFUSED),
            (OWN, 2, REFUSED),
        ]
        assert w.broker.requests(ADD_PARTITIONS_TO_TXN) == []
        assert await codes_of(**{PLAIN: [1]}) == [(PLAIN, 1, 0)]
        assert w.metrics.outcomes == [("topic_changes", "own_topic")]


async def test_a_topic_of_ours_that_there_is_not_yet_is_not_made_either() -> None:
    """A client would give it other settings than the service does."""
    with capture_logs() as logs:
        async with world() as w:
            w.broker.script[CREATE_TOPICS.key] = lambda *_: {"topics": []}
            client = await w.connect()
            request = of_create_topics(7, SETTINGS_TOPIC, "__rlm_later")
            answer = await client.call(CREATE_TOPICS, 7, request)
            assert [one["topics"] for one in w.broker.requests(CREATE_TOPICS)] == [[]]
    refused = [(SETTINGS_TOPIC, REFUSED), ("__rlm_later", REFUSED)]
    assert codes(answer, "topics") == refused
    assert all("listener" in one["error_message"] for one in answer["topics"])
    lines = [one for one in logs if one["event"] == "own_topics_refused"]
    assert [(one["api"], one["topic"]) for one in lines] == [
        ("CreateTopics", SETTINGS_TOPIC),
        ("CreateTopics", "__rlm_later"),
    ]


def marker(producer_id: int, **topics: list[int]) -> Value:
    rows = [{"name": name, "partition_indexes": at} for name, at in topics.items()]
    rest = {"producer_epoch": 1, "transaction_result": False, "coordinator_epoch": 4}
    return {"producer_id": producer_id, "topics": rows, **rest}


def all_written(_: int, request: Value) -> Value:
    """A broker that writes every marker, and answers each producer once."""
    found: dict[int, list[Value]] = {}
    for one in request["markers"]:
        for topic in one["topics"]:
            rows = [{"partition_index": at} for at in topic["partition_indexes"]]
            found.setdefault(one["producer_id"], []).append(
                {"name": topic["name"], "partitions": rows}
            )
    return {"markers": [{"producer_id": key, "topics": rows} for key, rows in found.items()]}


@pytest.mark.parametrize("version", range(WRITE_TXN_MARKERS.versions.high + 1))
async def test_no_marker_of_a_transaction_is_written_into_ours(version: int) -> None:
    """Whoever may write markers, which brokers and administrators may, ends none in our topics."""
    async with world() as w:
        w.broker.script[WRITE_TXN_MARKERS.key] = all_written
        client = await w.connect()

        async def codes_of(*markers: Value) -> dict[int, list[tuple[str, int, int]]]:
            answer = await client.call(WRITE_TXN_MARKERS, version, {"markers": list(markers)})
            found = [one["producer_id"] for one in answer["markers"]]
            assert len(found) == len(set(found))  # a client expects one answer a producer
            return {
                one["producer_id"]: [
                    (topic["name"], row["partition_index"], row["error_code"])
                    for topic in one["topics"]
                    for row in topic["partitions"]
                ]
                for one in answer["markers"]
            }

        mixed = marker(7, **{PLAIN: [1], OWN: [0, 2]})
        assert await codes_of(mixed, marker(8, **{OWN: [3]}), marker(9, **{PLAIN: [4]})) == {
            7: [(PLAIN, 1, 0), (OWN, 0, REFUSED), (OWN, 2, REFUSED)],
            8: [(OWN, 3, REFUSED)],
            9: [(PLAIN, 4, 0)],
        }
        [asked] = w.broker.requests(WRITE_TXN_MARKERS)
        assert [(one["producer_id"], one["coordinator_epoch"]) for one in asked["markers"]] == [
            (7, 4),
            (9, 4),
        ]
        assert OWN not in [t["name"] for one in asked["markers"] for t in one["topics"]]
        assert w.metrics.outcomes == [("topic_changes", "own_topic")]
        assert await codes_of(marker(7, **{PLAIN: [1]})) == {7: [(PLAIN, 1, 0)]}
        assert len(w.metrics.outcomes) == 1


@pytest.mark.parametrize(
    "api",
    [
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_PARTITIONS,
        ALTER_CONFIGS,
        INCREMENTAL_ALTER_CONFIGS,
        ADD_PARTITIONS_TO_TXN,
        WRITE_TXN_MARKERS,
    ],
)
def test_no_version_is_offered_that_is_not_read(api: Api) -> None:
    assert READ_APIS[api.key] == api.versions
