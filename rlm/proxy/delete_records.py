"""Answers DeleteRecords: the broker deletes, and the remote log start follows before the answer.

The rule is H26. All requests go over the client's own connection: the broker decides whether this
client may (G8). It is asked first for an offset below every log, which deletes nothing. A client
without the right to delete gets the broker's error, and a stranger is cut off: neither makes us ask
anything, nor learns what stops deletions. DeleteRecords cannot be undone, so a barrier is passed
before the request itself goes to the broker (H17), and what stops deletions refuses it there. Only
the broker's answer without error moves the remote log start, and the client gets that answer only
after the start was read back. If that fails, the client gets REQUEST_TIMED_OUT, which means
"perhaps done"; its repeated request changes nothing at the broker and finishes the rest.

"Up to the high watermark" (-1) is replaced by the high watermark of now. The broker's answer would
not do: its low watermark may lie above, because our own trim may have moved the log start while the
broker waited for followers, and nobody asked to delete what was trimmed.

A trim of a service that is sent here by mistake would end the archive (H1), so it is refused; so is
every deletion in the service's own topics. This module must not know sockets, or how a start is
raised.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import structlog

from kafka_protocol.apis import DELETE_RECORDS
from kafka_protocol.error_codes import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
)
from kafka_protocol.frames import encode_response, parse_request_header
from kafka_protocol.primitives import Buffer
from kip405.errors import RemoteStorageError, Unavailable
from rlm.broker.own_broker import is_sent_by_a_service
from rlm.clock import Clock
from rlm.proxy.own_topics import REFUSED, OwnTopics
from rlm.proxy.partition_work import PartitionWork, ask_changed, decode_request
from rlm.proxy.position_answers import NOT_NOW, Question, Value, paired, questions
from rlm.proxy.reads import Upstream, guarded, watermarks_or_none
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.remote_log.tier import Deletions, Tier, TierPartition, TopicRef

log = structlog.get_logger(__name__)

_HIGH_WATERMARK = -1
_UNKNOWN = -1
_BELOW_EVERY_LOG = 0
_MAY_DELETE = (NONE, REQUEST_TIMED_OUT)
"""Errors of an answer about an offset below every log: the second one says that the broker has not
heard from a follower yet, which it waits for only where the client may delete.
"""
_OUTCOMES = MappingProxyType(
    {NOT_NOW: "not_ready", POLICY_VIOLATION: "refused", TOPIC_AUTHORIZATION_FAILED: REFUSED}
)

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What the broker is asked for one partition; `view` None = it was not tiered then."""

    question: Question
    offset: int
    view: TierPartition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The refusal of one partition: ours, or that of the broker, which comes before it."""

    error_code: int


Decision = Forwarded | Refused


class DeleteRecordsHandler:
    """Answers the DeleteRecords of one connection."""

    def __init__(
        self,
        settings: ProxySettings,
        tier: Tier,
        deletions: Deletions,
        own_topics: OwnTopics,
        clock: Clock,
        metrics: ProxyMetrics,
    ) -> None:
        self._work = PartitionWork(tier, clock, metrics, wait_ms=settings.barrier_wait_ms)
        self._tier = tier
        self._deletions = deletions
        self._own_topics = own_topics
        self._metrics = metrics

    async def handle(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The broker's answer, once the remote log starts have followed."""
        request = decode_request(DELETE_RECORDS, taken)
        if is_sent_by_a_service(parse_request_header(taken.frame).client_id):
            decisions = self._refuse_trim(request)
        else:
            decisions = await self._decisions(request, taken, upstream)
        forwarded = forwarded_request(request, decisions)
        response: Value | None = None
        if forwarded is None:
            await upstream.settled()
        else:
            response = await self._forward(forwarded, decisions, taken, upstream)
        answer = merged_answer(response, decisions)
        return [encode_response(DELETE_RECORDS, taken.api_version, taken.correlation_id, answer)]

    async def _forward(
        self, request: Value, decisions: Mapping[Key, Decision], taken: Taken, upstream: Upstream
    ) -> Value:
        """The broker's answer; changed where the remote log start moved, or should have."""
        response = await ask_changed(DELETE_RECORDS, taken, request, upstream)
        asked = questions(request, "offset", name="name", index="partition_index")
        await self._work.each(
            partial(self._finish, decision, answered)
            for one, answered in paired(asked, response, name="name", index="partition_index")
            if isinstance(decision := decisions[one.topic, one.partition], Forwarded)
        )
        return response

    # Before the broker is asked.

    async def _decisions(
        self, request: Value, taken: Taken, upstream: Upstream
    ) -> dict[Key, Decision]:
        """Of each partition, in the order of the request."""
        asked = asked_once(request)
        decisions = {key: self._without_asking(one) for key, one in asked.items()}
        unknown = [key for key, decision in decisions.items() if decision is None]
        refused = await self._brokers_refusals(request, unknown, taken, upstream)

        async def decide(key: Key) -> None:
            decisions[key] = await self._decision(asked[key])

        await self._work.each(partial(decide, key) for key in unknown if key not in refused)
        not_now = Refused(error_code=NOT_NOW)
        return {key: refused.get(key, one or not_now) for key, one in decisions.items()}

    async def _brokers_refusals(
        self, request: Value, keys: Iterable[Key], taken: Taken, upstream: Upstream
    ) -> dict[Key, Refused]:
        """Where the broker lets this client delete nothing."""
        rows = {key: {"partition_index": key[1], "offset": _BELOW_EVERY_LOG} for key in keys}
        if not rows:
            return {}
        question = {**request, "topics": _by_topic(rows), "timeout_ms": 0}
        answered = _rows_of(await ask_changed(DELETE_RECORDS, taken, question, upstream))
        codes = {key: answered[key]["error_code"] if key in answered else NOT_NOW for key in rows}
        refused = {
            key: Refused(error_code=code) for key, code in codes.items() if code not in _MAY_DELETE
        }
        for _ in refused:
            self._metrics.answered("delete_records", "broker")
        return refused

    def _refuse_trim(self, request: Value) -> dict[Key, Decision]:
        why = "a service sent its trim to a proxy: broker.direct.address leads here"
        return {
            key: self._refuse(one, POLICY_VIOLATION, why)
            for key, one in asked_once(request).items()
        }

    def _without_asking(self, one: Question) -> Decision | None:
        """Whatever the broker's rules are; None: they count first."""
        if not self._own_topics.has(one.topic, None):
            return None
        return self._refuse(one, TOPIC_AUTHORIZATION_FAILED, "it is a topic of the service")

    async def _decision(self, one: Question) -> Decision:
        view = await self._work.view(one.topic, one.partition)
        if view is None:
            return Forwarded(question=one, offset=one.asked, view=None)
        if isinstance(view, RemoteStorageError):
            return self._refuse(one, NOT_NOW, str(view))
        stopped = self._deletions.refusal(view)
        if stopped is not None:
            return self._refuse(one, POLICY_VIOLATION, stopped)
        if view.remote_log_start_offset < 0:
            return self._refuse(one, NOT_NOW, "the remote log start is not written yet")
        offset = await self._offset(one, view)
        if offset is None:
            return self._refuse(one, NOT_NOW, "the high watermark is not known")
        return Forwarded(question=one, offset=offset, view=view)

    async def _offset(self, one: Question, view: TierPartition) -> int | None:
        """The offset itself where we know what it means; None = the broker did not answer."""
        if one.asked != _HIGH_WATERMARK or not view.led_here:
            return one.asked
        ref = TopicRef(name=one.topic)
        watermarks = await watermarks_or_none(self._tier, ref, one.partition, self._work.left_ms())
        return None if watermarks is None else watermarks.high_watermark

    def _refuse(self, one: Question, error_code: int, why: str) -> Refused:
        self._metrics.answered("delete_records", _OUTCOMES[error_code])
        log.info("delete_records_refused", topic=one.topic, partition=one.partition, why=why)
        return Refused(error_code=error_code)

    # After its answer.

    async def _finish(self, forwarded: Forwarded, answered: Value) -> None:
        if answered["error_code"] != NONE:
            self._pass_error(forwarded, answered)
            return
        if forwarded.view is None:
            await self._check_still_plain(forwarded, answered)
            return
        start = await self._raised(forwarded, forwarded.view)
        if isinstance(start, RemoteStorageError):
            self._ask_again(forwarded, answered, str(start))
            return
        answered["low_watermark"] = max(forwarded.offset, start)
        self._metrics.answered("delete_records", "remote")

    def _pass_error(self, forwarded: Forwarded, answered: Value) -> None:
        """The high watermark that we put in may be that of an earlier leadership."""
        is_ours = forwarded.offset != forwarded.question.asked
        if is_ours and answered["error_code"] == OFFSET_OUT_OF_RANGE:
            answered["error_code"] = NOT_NOW
        self._metrics.answered("delete_records", "broker")

    async def _check_still_plain(self, forwarded: Forwarded, answered: Value) -> None:
        """A topic that was enabled meanwhile has a remote log start, which has not followed."""
        one = forwarded.question
        if await self._work.view(one.topic, one.partition) is None:
            self._metrics.answered("delete_records", "broker")
        else:
            self._ask_again(forwarded, answered, "the topic may have been enabled meanwhile")

    async def _raised(self, forwarded: Forwarded, view: TierPartition) -> int | RemoteStorageError:
        if not view.led_here or forwarded.offset < 0:
            return Unavailable(f"{view.topic}-{view.partition} was led elsewhere just before")
        try:
            async with asyncio.timeout(self._work.left_ms() / 1000):
                return await guarded(self._deletions.raise_start(view, forwarded.offset))
        except TimeoutError:
            return Unavailable("the remote log start was not read back in time")

    def _ask_again(self, forwarded: Forwarded, answered: Value, why: str) -> None:
        one = forwarded.question
        answered["error_code"], answered["low_watermark"] = REQUEST_TIMED_OUT, _UNKNOWN
        self._metrics.answered("delete_records", "not_finished")
        log.warning(
            "delete_records_to_be_repeated", topic=one.topic, partition=one.partition, why=why
        )


def asked_once(request: Value) -> dict[Key, Question]:
    """The partitions of a decoded request; of one asked for twice, the last counts, as a broker
    does it (KafkaApis.handleDeleteRecordsRequest).
    """
    asked = questions(request, "offset", name="name", index="partition_index")
    return {(one.topic, one.partition): one for one in asked}


def forwarded_request(request: Value, decisions: Mapping[Key, Decision]) -> Value | None:
    """A DeleteRecords request for what may be asked; None when nothing is left."""
    rows = {
        key: {"partition_index": key[1], "offset": decision.offset}
        for key, decision in decisions.items()
        if isinstance(decision, Forwarded)
    }
    return {**request, "topics": _by_topic(rows)} if rows or not decisions else None


def merged_answer(response: Value | None, decisions: Mapping[Key, Decision]) -> Value:
    """One DeleteRecords answer: the broker's, and the refusals."""
    broker = {} if response is None else _rows_of(response)
    rows: dict[Key, Value] = {}
    for key, decision in decisions.items():
        if isinstance(decision, Refused):
            refused = {"low_watermark": _UNKNOWN, "error_code": decision.error_code}
            rows[key] = {"partition_index": key[1], **refused}
        elif key in broker:
            rows[key] = broker[key]
    throttle_time_ms = 0 if response is None else response["throttle_time_ms"]
    return {"throttle_time_ms": throttle_time_ms, "topics": _by_topic(rows)}


def _rows_of(response: Value) -> dict[Key, Value]:
    return {
        (topic["name"], row["partition_index"]): row
        for topic in response["topics"]
        for row in topic["partitions"]
    }


def _by_topic(rows: Mapping[Key, Value]) -> list[Value]:
    topics: dict[str, list[Value]] = {}
    for (topic, _), row in rows.items():
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "partitions": found} for topic, found in topics.items()]
