"""Answers of the console's data paths: calls of the API, put into rows off the event loop.

A status of the cluster is collected once a second at most for each caller (token and host) and
topic, however many pages ask, and at most a few are collected at a time. Every other answer is made
when it is asked for. This module must not know HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from kip405.errors import Busy, Invalid
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from kip405.topic_names import checked_name
from rlm.api.local_calls import CallRefused, LocalCaller, LocalCalls
from rlm.clock import Clock, next_turn
from rlm.console import rows
from rlm.console.costs import costs
from rlm.console.paging import Page, Row, number_of, partition_of
from rlm.console.readers import clients
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rsm_plugins.threads import Threads

KEPT_MS: Final = 1_000
"""How long an answer to one page is an answer to others of the same caller."""
KEPT_MAX: Final = 16
COLLECTED_AT_ONCE_MAX: Final = 8
WAITING_MAX: Final = 64
SEGMENTS_MAX: Final = 5_000
"""Of a partition whose segments are listed."""
SEGMENTS_A_TURN: Final = 250
"""Of the event loop, which others wait for."""
_STATES: Final = frozenset(one.name for one in RemoteLogSegmentState)

Query = Mapping[str, str]


@dataclass(slots=True)
class _Kept:
    """The status that one caller was given last, encoded: so it takes little memory. Whoever asks
    while it is collected waits for it.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: bytes | None = None
    at_ms: int = 0


class ConsoleAnswers:
    """All of them raise CallRefused where the API refuses, and Invalid for a wrong request."""

    def __init__(
        self,
        calls: LocalCalls,
        *,
        node_id: int,
        version: str,
        threads: Threads,
        clock: Clock,
        actions: Collection[str] = (),
    ) -> None:
        """`actions`: names of what the page can do."""
        self._calls = calls
        self._head: Row = {"node_id": node_id, "version": version, "actions": list(actions)}
        self._threads = threads
        self._clock = clock
        self._kept: dict[tuple[LocalCaller, str], _Kept] = {}
        self._slots = asyncio.Semaphore(COLLECTED_AT_ONCE_MAX)
        self._waiting = 0
        self._answers: Mapping[str, Callable[[Query, LocalCaller], Awaitable[Row]]] = {
            "cluster": self._cluster,
            "topic": self._topic,
            "partition": self._partition,
            "segments": self._segments,
            "segment": self._segment,
            "explanation": self._explanation,
            "deletions": self._deletions,
            "clients": self._clients,
            "kinds": self._kinds,
            "costs": self._costs,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Of all answers."""
        return tuple(self._answers)

    async def answer(self, name: str, query: Query, caller: LocalCaller) -> Row:
        """One of `names`. Busy: too many requests wait for theirs."""
        if self._waiting >= WAITING_MAX:
            raise Busy(f"{self._waiting} requests of the console are waited for already")
        self._waiting += 1
        try:
            async with self._slots:
                found = await self._answers[name](query, caller)
        finally:
            self._waiting -= 1
        return {"now_ms": self._clock.now_ms(), **self._head, **found}

    async def _cluster(self, query: Query, caller: LocalCaller) -> Row:
        page = Page.of(query)
        status = await self._status("", caller)
        return await self._threads.run(rows.cluster, status, page)

    async def _topic(self, query: Query, caller: LocalCaller) -> Row:
        name, page = _topic_of(query), Page.of(query)
        status = await self._status(name, caller)
        shown = await self._threads.run(rows.topic, status, page, name)
        shown["deletions"] = rows.deletions(status.deletions)
        try:
            described = await self._calls.describe_topic(
                pb.DescribeTopicRequest(topic=name), caller
            )
        except CallRefused as refusal:
            if not status.partitions:
                raise
            return {**shown, "description": None, "description_problem": refusal.text}
        return {**shown, "description": rows.description(described), "description_problem": ""}

    async def _partition(self, query: Query, caller: LocalCaller) -> Row:
        name, partition = _topic_of(query), partition_of(query)
        status = await self._status(name, caller)
        found = [row for row in status.partitions if row.partition == partition]
        subjects = (f"{name}-{partition}", f"topic {name}")
        problems = [row for row in status.problems if row.subject in subjects]
        return {
            "row": rows.partition(found[0]) if found else None,
            "problems": rows.problems(problems),
        }

    async def _segments(self, query: Query, caller: LocalCaller) -> Row:
        """A page of segments that end above `from`, ascending. `state`: in this one only. The API
        lists all of a partition, so one that has very many is refused.
        """
        of = _topic_of(query), partition_of(query)
        start, page, state = number_of(query, "from", 0), Page.of(query), query.get("state", "")
        if state and state not in _STATES:
            raise Invalid(f"state: there are {', '.join(sorted(_STATES))}")
        found: list[fetch_pb2.Segment] = []
        count = 0
        async with aclosing(self._listed(*of, caller)) as listed:
            async for one in listed:
                if one.next_offset > start and state in ("", one.state):
                    count += 1
                    if len(found) < page.count:
                        found.append(one)
        return {"count": count, "rows": [rows.segment(one) for one in found]}

    async def _segment(self, query: Query, caller: LocalCaller) -> Row:
        """What is known of one segment, the one with `id`. `row` is None where it is in the ledger
        no more.
        """
        name, partition = _topic_of(query), partition_of(query)
        wanted = _id_of(query)
        async with aclosing(self._listed(name, partition, caller)) as listed:
            known = [one async for one in listed]
        found = next((one for one in known if one.segment_id == wanted.raw), None)
        if found is None:
            return {"row": None}
        others = [
            one
            for one in known
            if one is not found
            and one.start_offset < found.next_offset
            and found.start_offset < one.next_offset
        ]
        said = await self._calls.events(pb.ListEventsRequest(topic=name), caller)
        status = await self._status(name, caller)
        events = [one for one in said.events if one.partition == partition]
        return {
            **rows.segment_history(found, others, events, status.deletions),
            "silent": rows.silent(said.sources),
        }

    async def _listed(
        self, name: str, partition: int, caller: LocalCaller
    ) -> AsyncGenerator[fetch_pb2.Segment, None]:
        """All segments of a partition, in turns of the event loop. Invalid: there are too many."""
        request = fetch_pb2.ListSegmentsRequest(
            topic=fetch_pb2.TopicRef(name=name), partition=partition, all_states=True
        )
        seen = 0
        async with aclosing(self._calls.segments(request, caller)) as found:
            async for one in found:
                seen += 1
                if seen > SEGMENTS_MAX:
                    raise Invalid(
                        f"there are more than the {SEGMENTS_MAX} segments that are listed here: "
                        f"rlm segments {name} -p {partition}"
                    )
                if seen % SEGMENTS_A_TURN == 0:
                    await next_turn()
                yield one

    async def _explanation(self, query: Query, caller: LocalCaller) -> Row:
        request = pb.ExplainPartitionRequest(topic=_topic_of(query), partition=partition_of(query))
        if query.get("offset"):
            request.offset = number_of(query, "offset", 0)
        return rows.explanation(await self._calls.explain(request, caller))

    async def _deletions(self, query: Query, caller: LocalCaller) -> Row:
        found = (await self._calls.deletions(pb.ListDeletionsRequest(), caller)).deletions
        return {"deletions": rows.deletions(found), "deletion_count": len(found)}

    async def _clients(self, query: Query, caller: LocalCaller) -> Row:
        topic = _topic_of(query) if query.get("topic") else ""
        page = Page.of(query)
        found = await self._calls.clients(pb.ListClientsRequest(topic=topic), caller)
        status = await self._status(topic, caller) if topic else pb.StatusResponse()
        return await self._threads.run(clients, found, page, status.partitions)

    async def _costs(self, query: Query, caller: LocalCaller) -> Row:
        page = Page.of(query)
        found = await self._calls.costs(pb.DescribeCostsRequest(), caller)
        return await self._threads.run(costs, found, page)

    async def _kinds(self, query: Query, caller: LocalCaller) -> Row:
        return {"kinds": rows.kinds()}

    async def _status(self, topic: str, caller: LocalCaller) -> pb.StatusResponse:
        """The status of the whole cluster, at most KEPT_MS old. Rights may be those of a host."""
        kept = self._kept.pop((caller, topic), None) or _Kept()
        self._kept[caller, topic] = kept
        for oldest in list(islice(self._kept, max(0, len(self._kept) - KEPT_MAX))):
            del self._kept[oldest]
        async with kept.lock:
            answer = kept.answer
            if answer is None or self._clock.monotonic_ms() - kept.at_ms >= KEPT_MS:
                answer = await self._calls.status(pb.StatusRequest(topic=topic), caller)
                kept.answer, kept.at_ms = answer, self._clock.monotonic_ms()
        return await self._threads.run(pb.StatusResponse.FromString, answer)


def _topic_of(query: Query) -> str:
    """Invalid: the request names no topic."""
    return checked_name(query.get("topic", ""))


def _id_of(query: Query) -> Uuid:
    """Invalid: the request names no segment."""
    try:
        return Uuid.parse(query.get("id", "")[:40])
    except ValueError as error:
        raise Invalid(f"id: {error}") from error
