"""Refuses to make, delete or change the service's own topics, and transactions in them.

What a request says of other topics goes to the broker, over the client's own connection, and the
broker's answers come back with our refusals behind them. A refusal is what a broker answers to a
client without the right, so every client knows it. A request that names none of our topics is
passed on as it came. A transaction gets all of its partitions or none, as at a broker: the end of
one writes a marker into each; markers by themselves (WriteTxnMarkers) go where they may. The table
in docs/security.md has what is refused and what is not. This module must not know sockets.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from kafka_protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    WRITE_TXN_MARKERS,
)
from kafka_protocol.apis.topics import TOPIC_RESOURCE
from kafka_protocol.error_codes import OPERATION_NOT_ATTEMPTED, TOPIC_AUTHORIZATION_FAILED
from kafka_protocol.frames import encode_response
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import Api, Value
from rlm.proxy.own_topics import REFUSED, OwnTopics
from rlm.proxy.partition_work import ask_changed, decode_request, pass_on
from rlm.proxy.reads import Upstream
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics

log = structlog.get_logger(__name__)

_MESSAGE = "The proxy changes no topic of rlm; an administrator does it at the broker's listener."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic of a request: its name or id, and the fields that an answer about it has."""

    name: str | None
    topic_id: bytes | None = None
    answer: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangingApi:
    """Where requests and answers of an API have their topics; `row` is None for another resource.
    Two request fields where versions differ.
    """

    api: Api
    fields: tuple[str, ...]
    row: Callable[[Value | str], TopicRow | None]
    answers: str
    first_with_message: int = 0

    def refusals(self, rows: Iterable[TopicRow], version: int) -> list[Value]:
        """The answers about our topics."""
        message = {"error_message": _MESSAGE} if version >= self.first_with_message else {}
        return [{**row.answer, "error_code": TOPIC_AUTHORIZATION_FAILED, **message} for row in rows]


def _of_delete(one: Value | str) -> TopicRow:
    """By name up to v5; later by name or id, of which the other one is null or zero."""
    if isinstance(one, str):
        return TopicRow(name=one, answer={"name": one})
    name, topic_id = one["name"], one["topic_id"]
    return TopicRow(name=name, topic_id=topic_id, answer={"name": name, "topic_id": topic_id})


def _of_named(one: Value | str) -> TopicRow:
    assert not isinstance(one, str)  # noqa: S101 - by the table of the API
    return TopicRow(name=one["name"], answer={"name": one["name"]})


def _of_resource(one: Value | str) -> TopicRow | None:
    assert not isinstance(one, str)  # noqa: S101 - by the table of the API
    if one["resource_type"] != TOPIC_RESOURCE:
        return None
    name = one["resource_name"]
    answer = {"resource_type": TOPIC_RESOURCE, "resource_name": name}
    return TopicRow(name=name, answer=answer)


CHANGING_APIS = MappingProxyType(
    {
        one.api.key: one
        for one in (
            ChangingApi(
                api=CREATE_TOPICS,
                fields=("topics",),
                row=_of_named,
                answers="topics",
                first_with_message=1,
            ),
            ChangingApi(
                api=DELETE_TOPICS,
                fields=("topics", "topic_names"),
                row=_of_delete,
                answers="responses",
                first_with_message=5,
            ),
            ChangingApi(
                api=CREATE_PARTITIONS, fields=("topics",), row=_of_named, answers="results"
            ),
            ChangingApi(
                api=ALTER_CONFIGS, fields=("resources",), row=_of_resource, answers="responses"
            ),
            ChangingApi(
                api=INCREMENTAL_ALTER_CONFIGS,
                fields=("resources",),
                row=_of_resource,
                answers="responses",
            ),
        )
    }
)


def without_own(
    changing: ChangingApi, request: Value, own_topics: OwnTopics
) -> tuple[Value, list[TopicRow]]:
    """The request without what it says of our topics, and that."""
    kept, refused = dict(request), []
    for field in changing.fields:
        kept[field] = []
        for one in request[field]:
            row = changing.row(one)
            if row is not None and own_topics.has(row.name, row.topic_id):
                refused.append(row)
            else:
                kept[field].append(one)
    return kept, refused


class TopicChangesHandler:
    """Answers the requests of one connection that change topics."""

    def __init__(self, own_topics: OwnTopics, metrics: ProxyMetrics) -> None:
        self._own_topics = own_topics
        self._metrics = metrics

    async def handle(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The broker's answer and our refusals; None when there are none and it was passed on."""
        changing, version = CHANGING_APIS[taken.api_key], taken.api_version
        api = changing.api
        kept, refused = without_own(changing, decode_request(api, taken), self._own_topics)
        if not refused:
            await pass_on(taken, upstream)
            return None
        self._refused(api, [row.name for row in refused])
        response = await ask_changed(api, taken, kept, upstream)
        response[changing.answers] += changing.refusals(refused, version)
        return [encode_response(api, version, taken.correlation_id, response)]

    async def add_partitions(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The answer to AddPartitionsToTxn: the broker's, which was passed on, or a refusal."""
        api = ADD_PARTITIONS_TO_TXN
        # What is decoded is many times the request, and is not kept while the broker works on it.
        ours = _added_to(decode_request(api, taken), self._own_topics)
        if not ours:
            await pass_on(taken, upstream)
            return None
        self._refused(api, sorted(ours))
        await upstream.settled()
        body = _nothing_added(decode_request(api, taken), ours)
        return [encode_response(api, taken.api_version, taken.correlation_id, body)]

    async def write_markers(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The answer to WriteTxnMarkers: the broker's, which was passed on, or with refusals where
        a marker would have come into our topics.
        """
        api, version = WRITE_TXN_MARKERS, taken.api_version
        kept, refused = _without_own_markers(decode_request(api, taken), self._own_topics)
        if not refused:
            await pass_on(taken, upstream)
            return None
        self._refused(api, sorted({one["name"] for marker in refused for one in marker["topics"]}))
        response = await ask_changed(api, taken, {"markers": kept}, upstream)
        _add_refused_markers(response["markers"], refused)
        return [encode_response(api, version, taken.correlation_id, response)]

    def _refused(self, api: Api, topics: Iterable[str | None]) -> None:
        for topic in topics:
            self._metrics.answered("topic_changes", REFUSED)
            log.warning("own_topics_refused", api=api.name, topic=topic)


def _added_to(request: Value, own_topics: OwnTopics) -> set[str]:
    """The names of our topics in an AddPartitionsToTxn."""
    of_brokers = request["transactions"]  # v4 on
    topics = [*request["v3_and_below_topics"], *(t for o in of_brokers for t in o["topics"])]
    return {one["name"] for one in topics if own_topics.has(one["name"], None)}


def _nothing_added(request: Value, ours: Collection[str]) -> Value:
    """The answer to AddPartitionsToTxn in the shape of its version."""

    def results(topics: Iterable[Value]) -> list[Value]:
        return [_not_added(topic, ours) for topic in topics]

    if request["transactions"]:
        rows = [
            {"transactional_id": one["transactional_id"], "topic_results": results(one["topics"])}
            for one in request["transactions"]
        ]
        return {"results_by_transaction": rows}
    return {"results_by_topic_v3_and_below": results(request["v3_and_below_topics"])}


def _not_added(topic: Value, ours: Collection[str]) -> Value:
    code = TOPIC_AUTHORIZATION_FAILED if topic["name"] in ours else OPERATION_NOT_ATTEMPTED
    rows = [
        {"partition_index": index, "partition_error_code": code} for index in topic["partitions"]
    ]
    return {"name": topic["name"], "results_by_partition": rows}


def _without_own_markers(request: Value, own_topics: OwnTopics) -> tuple[list[Value], list[Value]]:
    """The markers for topics of others, and those for ours; a marker for no topic is kept."""
    kept: list[Value] = []
    refused: list[Value] = []
    for marker in request["markers"]:
        ours: list[Value] = []
        others: list[Value] = []
        for one in marker["topics"]:
            (ours if own_topics.has(one["name"], None) else others).append(one)
        if ours:
            refused.append({**marker, "topics": ours})
        if others or not ours:
            kept.append({**marker, "topics": others})
    return kept, refused


def _add_refused_markers(answered: list[Value], refused: Iterable[Value]) -> None:
    """Add what was refused to the broker's answers, of which a client expects one a producer."""
    by_producer = {one["producer_id"]: one for one in answered}
    for marker in refused:
        producer_id = marker["producer_id"]
        if producer_id not in by_producer:
            by_producer[producer_id] = {"producer_id": producer_id, "topics": []}
            answered.append(by_producer[producer_id])
        by_producer[producer_id]["topics"] += map(_refused_marker, marker["topics"])


def _refused_marker(topic: Value) -> Value:
    rows = [
        {"partition_index": index, "error_code": TOPIC_AUTHORIZATION_FAILED}
        for index in topic["partition_indexes"]
    ]
    return {"name": topic["name"], "partitions": rows}


class RefusedProduce:
    """Partitions of the service's own topics that one client wanted to write to: each is counted,
    and the first one logged.
    """

    def __init__(self, metrics: ProxyMetrics) -> None:
        self._metrics = metrics
        self._is_logged = False

    def add(self, partitions: int, peer: str) -> None:
        """So many more, of the client with this address."""
        for _ in range(partitions):
            self._metrics.answered("produce", REFUSED)
        if not self._is_logged:
            self._is_logged = True
            log.warning("own_topics_refused", api=PRODUCE.name, peer=peer)
