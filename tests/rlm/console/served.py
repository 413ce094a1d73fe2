"""A console over a cluster that a test describes: real routes and calls, services that answer what
they are given.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from google.protobuf.message import Message

from kip405.errors import NotFound, RemoteStorageError
from rlm.api.authorization import Authorization
from rlm.api.calls import Answering, Gate, TokenSource, no_tokens
from rlm.api.local_calls import LocalCalls
from rlm.api.local_commands import LocalCommands
from rlm.console.access import ConsoleAccess
from rlm.console.actions import ConsoleActions
from rlm.console.answers import ConsoleAnswers
from rlm.console.routes import ConsoleRoutes
from rlm.service.listeners import HealthState, HttpServer
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rsm_plugins.contract.answering import Context
from tests.builders.clock import ManualClock
from tests.builders.threads import THREADS

HOST = "127.0.0.1"


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(kw_only=True)
class ShownCluster:
    """What the services of a cluster say."""

    status: pb.StatusResponse = field(default_factory=pb.StatusResponse)
    segments: Sequence[fetch_pb2.Segment] = ()
    topics: dict[str, pb.TopicDescription] = field(default_factory=dict)
    explanation: pb.Explanation = field(default_factory=pb.Explanation)
    clients: pb.ListClientsResponse = field(default_factory=pb.ListClientsResponse)
    events: pb.ListEventsResponse = field(default_factory=pb.ListEventsResponse)
    deletions: Sequence[pb.PendingDeletion] = ()
    costs: pb.CostsResponse = field(default_factory=pb.CostsResponse)
    asked: list[str] = field(default_factory=list)
    commands: list[tuple[str, Message]] = field(default_factory=list)
    copied: Sequence[pb.CopyClosedResponse] = ()
    verified: Sequence[pb.VerifyResponse] = ()
    fault: RemoteStorageError | None = None
    """What copies and verifications end with."""
    holds: asyncio.Event = field(default_factory=_set_event)
    """Copies go on to their end once it is set."""


class ShownAdmin:
    """AdminReads and AdminCommands behind the gate, as the real service."""

    def __init__(self, shown: ShownCluster, gate: Gate) -> None:
        self._shown = shown
        self._gate = gate

    async def Status(self, request: pb.StatusRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "status"):
            self._shown.asked.append(f"status {request.topic}".strip())
            found = pb.StatusResponse.FromString(self._shown.status.SerializeToString())
            if request.topic:
                _only(found.partitions, request.topic)
                _only(found.deletions, request.topic)
            return found.SerializeToString()

    async def DescribeTopic(self, request: pb.DescribeTopicRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "describe topic"):
            if request.topic not in self._shown.topics:
                raise NotFound(f"topic {request.topic} is not enabled")
            return self._shown.topics[request.topic]

    async def ExplainPartition(self, request: pb.ExplainPartitionRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "explain"):
            self._shown.asked.append("explanation")
            said = pb.Explanation()
            said.CopyFrom(self._shown.explanation)
            if request.HasField("offset"):
                said.offset = request.offset
            return said

    async def ListClients(self, request: pb.ListClientsRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "list clients"):
            return self._shown.clients

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "list events"):
            self._shown.asked.append(f"events {request.topic}".strip())
            found = pb.ListEventsResponse(sources=self._shown.events.sources)
            topics = ("", request.topic)
            found.events.extend(one for one in self._shown.events.events if one.topic in topics)
            return found

    async def ListDeletions(self, request: pb.ListDeletionsRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "list deletions"):
            return pb.ListDeletionsResponse(deletions=self._shown.deletions)

    async def DescribeCosts(self, request: pb.DescribeCostsRequest, context: Context) -> Any:
        async with Answering(self._gate, context, "describe costs"):
            self._shown.asked.append("costs")
            return self._shown.costs

    async def UndoDeletion(self, request: pb.UndoDeletionRequest, context: Context) -> Any:
        async with self._command("undo", request, context):
            return pb.TopicDescription(topic=request.topic, state="disabled")

    async def SetCopyLimit(self, request: pb.SetCopyLimitRequest, context: Context) -> Any:
        async with self._command("copy-limit", request, context):
            row = pb.NodeCopyLimit(node_id=1, bytes_per_second=request.bytes_per_second)
            return pb.ListCopyLimitsResponse(nodes=[row])

    async def Freeze(self, request: pb.FreezeRequest, context: Context) -> Any:
        async with self._command("freeze", request, context):
            return pb.FreezeResponse()

    async def Verify(self, request: pb.VerifyRequest, context: Context) -> AsyncIterator[Any]:
        async with self._command("verify", request, context):
            for one in self._shown.verified:
                yield one
            self._end()

    async def CopyClosed(
        self, request: pb.CopyClosedRequest, context: Context
    ) -> AsyncIterator[Any]:
        async with self._command("copy", request, context):
            try:
                for one in self._shown.copied:
                    yield one
                await self._shown.holds.wait()
                self._end()
            except (GeneratorExit, asyncio.CancelledError):
                self._shown.asked.append("copy is given up")
                raise

    @contextlib.asynccontextmanager
    async def _command(self, name: str, request: Message, context: Context) -> AsyncIterator[None]:
        async with Answering(self._gate, context, name):
            self._shown.commands.append((name, request))
            yield

    def _end(self) -> None:
        if self._shown.fault is not None:
            raise self._shown.fault


def _only(rows: Any, topic: str) -> None:
    kept = [row for row in rows if row.topic == topic]
    del rows[:]
    rows.extend(kept)


class ShownFetch:
    """FetchReads, likewise."""

    def __init__(self, shown: ShownCluster, gate: Gate) -> None:
        self._shown = shown
        self._gate = gate

    async def ListSegments(
        self, request: fetch_pb2.ListSegmentsRequest, context: Context
    ) -> AsyncIterator[Any]:
        async with Answering(self._gate, context, "list segments"):
            self._shown.asked.append("segments")
            for one in self._shown.segments:
                yield one


@dataclass(kw_only=True)
class Console:
    """A running console; `token` goes with every request."""

    port: int
    clock: ManualClock
    shown: ShownCluster
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def get(
        self, path: str, token: str | None = None, host: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON body of a data path."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if host is not None:
            headers["Host"] = host
        async with self.session.get(f"{self.url}/console/data/{path}", headers=headers) as answer:
            return answer.status, await answer.json()

    async def act(
        self, name: str, fields: object, token: str | None = None, **changed: str
    ) -> tuple[int, list[dict[str, Any]]]:
        """Status and lines of an action; `changed`: other headers than those of the page."""
        headers = {
            "Origin": changed.pop("Origin", self.url),
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/json",
            **({} if token is None else {"Authorization": f"Bearer {token}"}),
            **{key.replace("_", "-"): value for key, value in changed.items()},
        }
        body = fields if isinstance(fields, str) else json.dumps(fields)
        url = f"{self.url}/console/actions/{name}"
        async with self.session.post(url, data=body, headers=headers) as answer:
            text = await answer.text()
            return answer.status, [json.loads(line) for line in text.splitlines()]


def answers_of(
    shown: ShownCluster,
    gate: Gate,
    authorization: Authorization | None = None,
    clock: ManualClock | None = None,
    actions: Sequence[str] = (),
) -> ConsoleAnswers:
    """What the console answers, without HTTP."""
    calls = LocalCalls(
        admin=ShownAdmin(shown, gate), fetch=ShownFetch(shown, gate), authorization=authorization
    )
    return ConsoleAnswers(
        calls,
        node_id=1,
        version="1",
        threads=THREADS,
        clock=clock or ManualClock(),
        actions=actions,
    )


@contextlib.asynccontextmanager
async def console(
    shown: ShownCluster,
    *,
    gate: Gate | None = None,
    api_asks: bool = False,
    http_tokens: TokenSource = no_tokens,
    api_is_closed: bool = False,
    allows_all: bool = False,
    authorization: Authorization | None = None,
    clock: ManualClock | None = None,
    acts: bool = False,
) -> AsyncIterator[Console]:
    """By default as on a machine without tokens, on loopback. `acts`: as with console.actions."""
    clock, gate = clock or ManualClock(), gate or Gate()
    commands = LocalCommands(ShownAdmin(shown, gate), authorization)
    actions = ConsoleActions(commands) if acts else None
    names = () if actions is None else actions.names
    answers = answers_of(shown, gate, authorization, clock, names)
    access = ConsoleAccess(
        gate=gate,
        api_asks=api_asks,
        http_tokens=http_tokens,
        api_is_closed=api_is_closed,
        allows_all=allows_all,
    )
    server = HttpServer(
        host=HOST,
        port=0,
        health=lambda: HealthState(alive=True, ready=True, problems=()),
        metrics=bytes,
        routes=ConsoleRoutes(answers, access, actions).routes(),
    )
    port = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Console(port=port, clock=clock, shown=shown, session=session)
    finally:
        await server.stop()


def row(topic: str, partition: int, **fields: Any) -> fetch_pb2.PartitionDescription:
    """A partition that is well; `fields` are others of the message."""
    known: dict[str, Any] = {
        "topic": topic,
        "topic_id": b"t" * 16,
        "partition": partition,
        "leader": 1,
        "leader_epoch": 3,
        "remote_log_start_offset": 0,
        "remote_next_offset": 900,
        "local_log_start_offset": 700,
        "last_stable_offset": 1_000,
        "high_watermark": 1_000,
        "log_end_offset": 1_000,
        "lag_bytes": 0,
        "lag_segments": 0,
        "remote_size_bytes": 9_000,
        "remote_segments": 9,
        "local_size_bytes": 3_000,
    }
    return fetch_pb2.PartitionDescription(**(known | fields))


def ranges(*found: tuple[int, int]) -> Iterable[fetch_pb2.OffsetRange]:
    return [fetch_pb2.OffsetRange(start_offset=start, end_offset=end) for start, end in found]


def service(node_id: int = 1, **fields: Any) -> pb.ServiceStatus:
    known: dict[str, Any] = {
        "node_id": node_id,
        "version": "1",
        "grpc_address": f"10.0.0.{node_id}:19093",
        "proxy_address": f"10.0.0.{node_id}:19092",
        "heartbeat_age_ms": 400,
        "reachable": True,
        "health": "well",
    }
    return pb.ServiceStatus(**(known | fields))
