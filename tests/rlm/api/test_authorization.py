"""Rights at the API over a real channel: no data without READ, no offset without DESCRIBE."""

from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2

from kip405.errors import ErrorKind, NotFound
from kip405.ids import Uuid
from rlm.api.authorization import CHECK_AGAIN_MS, LACKS_SHOWN_MAX, Authorization
from rlm.api.authorizers import CallerRights, FileAuthorizer
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Caller, Gate, no_tokens
from rlm.api.method_rights import METHOD_RULES
from rlm.api.principals import Principals, principals_of, token_hash
from rlm.plans.api_rights import Need
from rlm.plans.problems import Problem, ProblemKind
from rlm.v1 import admin_pb2 as pb
from rlm.v1 import fetch_pb2
from rsm_plugins.contract.status import error_of_call
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.authorised import (
    ADMIN,
    OPERATOR,
    READER,
    SERVICES,
    STRANGER,
    USUAL,
    Site,
    authorised_node,
    principals,
)
from tests.rlm.api.harness import channel_to
from tests.rlm.api.test_method_rights import NEEDED, Names
from tests.rlm.topics.cluster import Cluster

REF = fetch_pb2.TopicRef(name=TOPIC)
BY_ID = fetch_pb2.TopicRef(topic_id=TOPIC_ID.raw)
UNKNOWN = Uuid(b"\x05" * 16)
DENIED = grpc.StatusCode.PERMISSION_DENIED


async def refused(site: Site, name: str, request: Any, who: str | None, **more: Any) -> Any:
    with pytest.raises(aio.AioRpcError) as caught:
        await site.call(name, request, who, **more)
    return caught.value


async def code(site: Site, name: str, request: Any, who: str | None) -> grpc.StatusCode:
    """OK also where the service itself has failed the call: it was let in."""
    try:
        await site.call(name, request, who)
    except aio.AioRpcError as error:
        return error.code() if error.code() is DENIED else grpc.StatusCode.OK
    return grpc.StatusCode.OK


async def test_a_stranger_learns_nothing_by_any_method() -> None:
    """Each request that needs a right is refused before the service sees it."""
    async with authorised_node(Cluster(), known=principals(nobody={"x": ["read"]})) as site:
        for name, request, needed in NEEDED:
            if needed:
                error = await refused(site, name, request, "nobody")
                assert error.code() is DENIED, name
                assert "nobody has no right " in (error.details() or ""), name
        assert not (await site.call("ListTopics", pb.ListTopicsRequest(), "nobody")).topics
        assert not (await site.call("ListCandidates", pb.ListCandidatesRequest(), "nobody")).topics
        found = await site.call("Status", pb.StatusRequest(), "nobody")
        assert not (found.partitions or found.services or found.readers or found.problems)
        described = fetch_pb2.DescribeTopicsRequest()
        assert not (await site.call("DescribeTopics", described, "nobody")).topics
    assert site.audit.lines == []


READ = {"Fetch", "ReadObject", "BuildRemoteLogAuxState"}
DESCRIBE = {
    "ListOffsets",
    "DescribePartition",
    "ListSegments",
    "DescribeRemoteLog",
}


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (READER, READ | DESCRIBE),
        (OPERATOR, DESCRIBE | {"Copy"}),
        (ADMIN, DESCRIBE | {"Copy"}),
        (STRANGER, set()),
    ],
)
async def test_who_may_read_and_who_may_only_describe(who: str, may: set[str]) -> None:
    async with authorised_node(Cluster()) as site:
        requests = [row for row in NEEDED if row[0] in READ | DESCRIBE | {"Copy"}]
        let_in = {
            name
            for name, request, _ in requests
            if await code(site, name, request, who) is grpc.StatusCode.OK
        }
        assert let_in == may


async def test_a_refusal_of_many_topics_has_one_short_line_in_the_log() -> None:
    async with authorised_node(Cluster()) as site:
        with structlog.testing.capture_logs() as logs:
            for topics in (["other", *(f"topic-{n}" for n in range(9_000))], ["x" * 100_000]):
                request = fetch_pb2.DescribeTopicsRequest(topics=topics)
                assert (await refused(site, "DescribeTopics", request, READER)).code() is DENIED
        many, long = (row for row in logs if row["event"] == "call_refused")
    assert many["lacks"] == "describe on topic other"
    assert len(long["lacks"]) == LACKS_SHOWN_MAX
    assert all(len(str(row)) < 2_000 for row in logs)


class CountedRights:
    """Implements CallerRights and Authorizer: all rights on one topic. `asked`: of which topics."""

    words = "so it is in this test"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.asked: list[str] = []

    async def rights_of(self, caller: Caller) -> CallerRights:
        return self

    def lacks(self, needs: Iterable[Need]) -> tuple[Need, ...]:
        asked = tuple(needs)
        self.asked += [need.topic for need in asked]
        return tuple(need for need in asked if need.topic != self._topic)


async def test_each_topic_of_a_call_is_looked_up_once_and_none_after_the_first_refusal() -> None:
    rights = CountedRights(TOPIC)
    async with authorised_node(Cluster(), authorizer=rights) as site:
        request = fetch_pb2.DescribeTopicsRequest(topics=[TOPIC, TOPIC, "other", "third"])
        await refused(site, "DescribeTopics", request, READER)
        assert rights.asked == [TOPIC, "other"]
        rights.asked.clear()
        site.fakes.statuses.problems = [
            Problem(kind=ProblemKind.OTHER, subject=str(n), topic=TOPIC, text="x", since_ms=1)
            for n in range(5)
        ]
        found = await site.call("Status", pb.StatusRequest(), READER)
        assert len(found.problems) == 5
        assert sorted(rights.asked) == ["*", TOPIC]


async def test_a_reader_gets_records_and_no_commands() -> None:
    async with authorised_node(Cluster()) as site:
        request = fetch_pb2.FetchRequest(topic=REF, max_bytes=300)
        rows = await site.call("Fetch", request, READER)
        assert rows and rows[0].batches
        for name, command in (
            ("Freeze", pb.FreezeRequest(topic=TOPIC)),
            ("DisableTopic", pb.DisableTopicRequest(topic=TOPIC)),
        ):
            assert (await refused(site, name, command, READER)).code() is DENIED
        assert not (await site.call("Status", pb.StatusRequest(), ADMIN)).freezes
    assert site.audit.lines == []


async def test_who_is_not_known_is_not_let_in_and_a_claimed_name_counts_for_nothing() -> None:
    async with authorised_node(Cluster()) as site:
        request = fetch_pb2.FetchRequest(topic=REF)
        for who in (None, "somebody"):
            error = await refused(site, "Fetch", request, who, says=READER)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        for forwarded in ("", "rlm-1"):
            error = await refused(
                site, "Fetch", request, STRANGER, says=READER, forwarded_by=forwarded
            )
            assert error.code() is DENIED
            assert "stranger has no right read on topic orders" in (error.details() or "")


async def test_a_refusal_is_an_error_that_no_client_repeats() -> None:
    async with authorised_node(Cluster()) as site:
        error = await refused(site, "Fetch", fetch_pb2.FetchRequest(topic=REF), STRANGER)
        found = error_of_call(error, "it")
        assert found.kind is ErrorKind.INVALID and not found.retriable


async def test_a_hidden_topic_is_as_one_that_does_not_exist_where_its_id_is_named() -> None:
    async with authorised_node(Cluster()) as site:
        for ref, topic_id in (
            (BY_ID, TOPIC_ID),
            (fetch_pb2.TopicRef(topic_id=UNKNOWN.raw), UNKNOWN),
        ):
            error = await refused(site, "ListOffsets", _latest(ref), STRANGER)
            found = error_of_call(error, "it")
            assert isinstance(found, NotFound)
            assert str(found) == f"no topic has the id {topic_id}"
        assert (await site.call("ListOffsets", _latest(BY_ID), READER)).offset >= 0
        error = await refused(site, "Fetch", fetch_pb2.FetchRequest(topic=BY_ID), OPERATOR)
        assert error.code() is DENIED
        for name, request in (
            ("UndoDeletion", pb.UndoDeletionRequest(topic=str(TOPIC_ID))),
            ("Purge", pb.PurgeRequest(topics=[str(TOPIC_ID)], confirm=True)),
        ):
            error = await refused(site, name, request, STRANGER)
            assert error.code() is DENIED
            assert TOPIC not in (error.details() or "")


def _latest(ref: fetch_pb2.TopicRef) -> fetch_pb2.ListOffsetsRequest:
    return fetch_pb2.ListOffsetsRequest(topic=ref, timestamp=-1)


async def test_a_right_on_a_prefix_of_an_id_is_no_right_on_its_topic() -> None:
    text = str(TOPIC_ID)
    known = principals(cunning={"x": ["read"], text: ["admin"]})
    async with authorised_node(Cluster(), known=known) as site:
        requests: list[tuple[str, Any]] = [
            ("UndoDeletion", pb.UndoDeletionRequest(topic=text)),
            ("Freeze", pb.FreezeRequest(topic=text)),
            ("Unfreeze", pb.FreezeRequest(topic=text)),
            ("DisableTopic", pb.DisableTopicRequest(topic=text)),
            ("DisableTopic", pb.DisableTopicRequest(topic=text, delete_remote=True)),
        ]
        for name, request in requests:
            assert (await refused(site, name, request, "cunning")).code() is DENIED, name


async def test_a_right_on_a_topic_counts_where_its_id_is_named() -> None:
    async with authorised_node(Cluster()) as site:
        frozen = await site.call("Freeze", pb.FreezeRequest(topic=str(TOPIC_ID)), OPERATOR)
        assert [row.topic for row in frozen.freezes] == [TOPIC]
        error = await refused(site, "Freeze", pb.FreezeRequest(topic=str(TOPIC_ID)), STRANGER)
        assert error.code() is DENIED and TOPIC not in (error.details() or "")


async def test_lists_and_status_have_only_what_the_caller_may_see() -> None:
    async with authorised_node(Cluster()) as site:
        site.fakes.statuses.problems = [
            Problem(kind=ProblemKind.OTHER, subject=s, topic=t, text="x", since_ms=1)
            for s, t in ((f"topic {TOPIC}", TOPIC), ("topic other", "other"), ("node 2", ""))
        ]
        found = await site.call("Status", pb.StatusRequest(), READER)
        assert {row.topic for row in found.partitions} == {TOPIC}
        assert [row.topic for row in found.problems] == [TOPIC]
        assert not found.services and not found.readers
        whole = await site.call("Status", pb.StatusRequest(), ADMIN)
        assert whole.services and len(whole.problems) == 3
        for name, request in (
            ("ListTopics", pb.ListTopicsRequest()),
            ("ListCandidates", pb.ListCandidatesRequest()),
        ):
            for who, topics in ((READER, [TOPIC]), (STRANGER, []), (ADMIN, [TOPIC])):
                rows = (await site.call(name, request, who)).topics
                assert [row.topic for row in rows] == topics, (name, who)


async def test_a_freeze_of_one_topic_is_not_shown_to_others() -> None:
    async with authorised_node(Cluster()) as site:
        mine = await site.call("Freeze", pb.FreezeRequest(topic=TOPIC, why="w"), OPERATOR)
        assert [(row.topic, row.by) for row in mine.freezes] == [(TOPIC, OPERATOR)]
        error = await refused(site, "Freeze", pb.FreezeRequest(), OPERATOR)
        assert "operate on every topic" in (error.details() or "")
        await site.call("Freeze", pb.FreezeRequest(), ADMIN)
        seen = (await site.call("Status", pb.StatusRequest(), STRANGER)).freezes
        assert [row.topic for row in seen] == [""]


async def test_each_command_that_changes_something_has_one_line_with_who_and_from_where() -> None:
    async with authorised_node(Cluster()) as site:
        await site.call("Freeze", pb.FreezeRequest(topic=TOPIC, why="moving"), OPERATOR, says="x")
        await site.call("Status", pb.StatusRequest(), OPERATOR)
        plan = pb.AcceptLossRequest(topic=TOPIC)
        await code(site, "AcceptLoss", plan, ADMIN)
        await site.call("Unfreeze", pb.FreezeRequest(topic=TOPIC), SERVICES, says="ann")
    assert site.audit.lines == [
        {
            "command": "Freeze",
            "by": OPERATOR,
            "is_proven": True,
            "address": "127.0.0.1",
            "request": {"topic": TOPIC, "why": "moving"},
        },
        {
            "command": "Unfreeze",
            "by": "ann",
            "is_proven": False,
            "address": "127.0.0.1",
            "request": {"topic": TOPIC},
        },
    ]


async def test_a_command_whose_line_cannot_be_written_is_not_given_unless_it_stops_deletion() -> (
    None
):
    async with authorised_node(Cluster()) as site:
        site.audit.is_full = True
        error = await refused(site, "SetTrim", pb.SetTrimRequest(topic=TOPIC, on=True), ADMIN)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert site.fakes.service.settings.view.topics()[0].mode == "copy"
        assert (await site.call("Freeze", pb.FreezeRequest(), ADMIN)).freezes


async def test_an_audit_disk_that_hangs_holds_up_no_freeze() -> None:
    async with authorised_node(Cluster()) as site:
        site.audit.hangs = True
        with structlog.testing.capture_logs() as logs:
            assert (await site.call("Freeze", pb.FreezeRequest(), ADMIN)).freezes
    [line] = [row for row in logs if row["event"] == "command_not_audited"]
    assert line["error"] == "it is not written after 1000 ms"


async def test_an_audit_disk_that_hangs_holds_up_nothing_where_rights_are_off() -> None:
    async with authorised_node(Cluster(), is_authorised=False) as site:
        site.audit.hangs = True
        found = await site.call("SetTrim", pb.SetTrimRequest(topic=TOPIC, on=True), SERVICES)
        assert found.topic.trim


async def test_a_forwarded_command_has_one_line_and_the_rights_of_its_caller() -> None:
    cluster = Cluster()
    async with (
        authorised_node(cluster, node_id=1) as one,
        authorised_node(cluster, node_id=2) as two,
    ):
        await two.fakes.service.settings.barrier(1)
        request = pb.SetTrimRequest(topic=TOPIC, on=True)
        assert (await refused(two, "SetTrim", request, OPERATOR)).code() is DENIED
        assert (await two.call("SetTrim", request, ADMIN)).topic.trim
    assert [line["by"] for line in two.audit.lines] == [ADMIN]
    assert one.audit.lines == []


async def test_without_an_authorizer_a_command_that_is_called_forwarded_has_its_line_too() -> None:
    """Whoever may call could say so."""
    async with authorised_node(Cluster(), is_authorised=False) as site:
        request = pb.FreezeRequest(topic=TOPIC)
        await site.call("Freeze", request, SERVICES, says="bob", forwarded_by="rlm-9")
    assert [(line["command"], line["by"]) for line in site.audit.lines] == [("Freeze", "bob")]


async def test_without_an_authorizer_everybody_with_the_token_may_and_leaves_a_line() -> None:
    async with authorised_node(Cluster(), is_authorised=False) as site:
        assert await site.call("Fetch", fetch_pb2.FetchRequest(topic=REF), SERVICES)
        await site.call("Freeze", pb.FreezeRequest(topic=TOPIC), SERVICES, says="bob")
        error = await refused(site, "Freeze", pb.FreezeRequest(topic=TOPIC), READER)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        site.audit.is_full = True
        assert await site.call("Unfreeze", pb.FreezeRequest(topic=TOPIC), SERVICES) is not None
    assert [(line["by"], line["is_proven"]) for line in site.audit.lines] == [("bob", False)]


class CallContext:
    """A call of the reader, whose server is the test."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return call_metadata("me", f"{READER}-token")

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:40000"

    async def abort(self, code: grpc.StatusCode, what: str, trailing: object) -> None:
        raise Aborted(code)


class Aborted(aio.AbortError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self.code = code


@pytest.mark.parametrize(
    ("then", "refusal"),
    [
        (principals(reader={"other": ["read"]}), DENIED),
        (principals(operator={TOPIC: ["read"]}), grpc.StatusCode.UNAUTHENTICATED),
        (
            principals_of(
                {
                    READER: {"tokens": [token_hash("next")], "topics": {TOPIC: ["read"]}},
                    "b": {"tokens": [token_hash(f"{READER}-token")], "topics": {TOPIC: ["read"]}},
                }
            ),
            grpc.StatusCode.UNAUTHENTICATED,
        ),
    ],
    ids=["no right", "no token", "the token of another"],
)
async def test_a_read_ends_when_its_right_or_its_token_is_taken_away(
    then: Principals, refusal: grpc.StatusCode
) -> None:
    clock, known, ended = ManualClock(), [USUAL], []

    async def answers(request: object, context: object) -> AsyncIterator[int]:
        try:
            for number in range(9):
                yield number
        finally:
            ended.append(True)

    async def found(details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_stream_rpc_method_handler(answers)

    authorization = Authorization(
        gate=Gate(no_tokens, lambda: known[0]),
        authorizer=FileAuthorizer(lambda: known[0]),
        names=Names(),
        audit=None,
        clock=clock,
    )
    details = SimpleNamespace(method="/rlm.v1.FetchService/Fetch", invocation_metadata=())
    handler: Any = await authorization.intercept_service(found, cast(Any, details))
    rows = handler.unary_stream(fetch_pb2.FetchRequest(topic=REF), CallContext())
    assert [await anext(rows), await anext(rows)] == [0, 1]
    known[0] = then
    assert await anext(rows) == 2  # asked again after a second only
    await clock.sleep_ms(CHECK_AGAIN_MS)
    with pytest.raises(Aborted) as caught:
        await anext(rows)
    assert caught.value.code is refusal and ended == [True]


@pytest.mark.parametrize("has_rights", [False, True])
async def test_calls_by_grpc_are_decoded_after_the_console_has_called(has_rights: bool) -> None:
    """Whoever came first decided for both: `rlm status` failed once a console had been opened."""

    async def status(request: pb.StatusRequest, context: object) -> bytes:
        return b""

    authorization = Authorization(
        gate=Gate(no_tokens, lambda: USUAL),
        authorizer=FileAuthorizer(lambda: USUAL) if has_rights else None,
        names=Names(),
        audit=None,
        clock=ManualClock(),
    )
    details = SimpleNamespace(method="/rlm.v1.AdminService/Status", invocation_metadata=())
    decode = pb.StatusRequest.FromString
    by_grpc: Any = grpc.unary_unary_rpc_method_handler(status, request_deserializer=decode)
    local: Any = grpc.unary_unary_rpc_method_handler(status)
    kept = []
    for handler in (local, by_grpc, local, by_grpc):

        async def found(details: grpc.HandlerCallDetails, handler: Any = handler) -> Any:
            return handler

        kept.append(await authorization.intercept_service(found, cast(Any, details)))
        assert cast(Any, kept[-1]).request_deserializer is handler.request_deserializer
    assert kept[0] is kept[2] and kept[1] is kept[3], "they are wrapped once"


async def test_health_and_nothing_else_answers_everybody() -> None:
    async with authorised_node(Cluster()) as site, channel_to(site.address) as channel:
        check: Any = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        found = await check(health_pb2.HealthCheckRequest())
        assert found.status == health_pb2.HealthCheckResponse.SERVING
        for method in METHOD_RULES:
            call: Any = channel.unary_unary(method)
            with pytest.raises(aio.AioRpcError) as caught:
                await call(b"", timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method
