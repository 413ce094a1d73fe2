"""What the console does for its user: who may, by which pages, and what the API is asked for."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kip405.errors import Unavailable
from rlm.api.authorization import Authorization, SettingsTopicNames
from rlm.api.authorizers import FileAuthorizer
from rlm.api.calls import Gate
from rlm.api.principals import principals_of, token_hash
from rlm.console import routes
from rlm.console.actions import RUNNING_MAX
from rlm.v1 import admin_pb2 as pb
from tests.builders.clock import ManualClock
from tests.rlm.console.served import HOST, Console, ShownCluster, console, row
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest
from tests.waiting import until

COPY: dict[str, Any] = {"topic": "orders", "partition": 1}
_FREEZE = {"topic": "orders", "why": "legal"}


def _cluster(**fields: Any) -> ShownCluster:
    copied = [
        pb.CopyClosedResponse(
            progress=pb.CopyProgress(
                topic="orders", partition=1, doing="copying", segments=1, segments_total=3
            )
        ),
        pb.CopyClosedResponse(
            partition=pb.CopiedPartition(topic="orders", partition=1, segments=3, complete=True)
        ),
    ]
    status = pb.StatusResponse(partitions=[row("orders", 1)])
    return ShownCluster(status=status, **{"copied": copied, **fields})


async def test_without_the_setting_nothing_can_be_done() -> None:
    async with console(_cluster()) as shown:
        assert (await shown.get("cluster"))[1]["actions"] == []
        async with shown.session.post(f"{shown.url}/console/actions/copy") as answer:
            assert answer.status in (404, 405)
        assert shown.shown.commands == []


async def test_each_action_is_one_command_of_the_api() -> None:
    async with console(_cluster(), acts=True) as shown:
        names = (await shown.get("cluster"))[1]["actions"]
        given: dict[str, tuple[dict[str, Any], Any]] = {
            "copy": (COPY, pb.CopyClosedRequest(targets=[pb.CopyTarget(**COPY)])),
            "verify": ({"topic": "orders"}, pb.VerifyRequest(topic="orders")),
            "copy-limit": ({"bytes": 1 << 20}, pb.SetCopyLimitRequest(bytes_per_second=1 << 20)),
            "undo": (COPY, pb.UndoDeletionRequest(**COPY)),
            "freeze": (_FREEZE, pb.FreezeRequest(**_FREEZE)),
        }
        assert sorted(given) == sorted(names)
        for name, (fields, expected) in given.items():
            status, lines = await shown.act(name, fields)
            assert status == 200 and lines[-1] == {"end": True}
            assert shown.shown.commands.pop() == (name, expected)
        await shown.act("copy-limit", {})
        assert shown.shown.commands.pop()[1] == pb.SetCopyLimitRequest()
        await shown.act("copy", {"topic": "orders"})
        assert shown.shown.commands.pop()[1] == pb.CopyClosedRequest(
            targets=[pb.CopyTarget(topic="orders")]
        )


async def test_a_copy_reports_how_far_it_is_and_why_it_ends() -> None:
    async with console(_cluster(), acts=True) as shown:
        _, [going, done, _] = await shown.act("copy", COPY)
        assert (going["doing"], going["segments"], going["segments_total"]) == ("copying", 1, 3)
        assert (done["doing"], done["segments"], done["error"]) == ("done", 3, "")
        shown.shown.fault = Unavailable("the store is away")
        _, lines = await shown.act("copy", COPY)
        assert len(lines) == 3 and "the store is away" in lines[-1]["error"]
        shown.shown.copied = ()
        status, [refused] = await shown.act("copy", COPY)
        assert status == 503 and "the store is away" in refused["error"]


async def test_a_verification_reports_what_it_found_and_what_it_could_not_check() -> None:
    verified = [
        pb.VerifyResponse(progress=pb.VerifyProgress(node_id=1, segments=2, segments_total=3)),
        pb.VerifyResponse(issue=pb.VerifyIssue(is_finding=True, text="gone", action="copy it")),
        pb.VerifyResponse(partition=pb.VerifiedPartition(partition=1, unchecked=["no answer"])),
    ]
    async with console(_cluster(verified=verified), acts=True) as shown:
        _, [going, issue, done, _] = await shown.act("verify", {"topic": "orders"})
    assert going == {"node_id": 1, "segments": 2, "segments_total": 3}
    assert issue["finding"] and issue["action"] == "copy it"
    assert done == {"partition": 1, "findings": 0, "unchecked": ["no answer"]}


async def test_a_page_that_is_closed_ends_its_copy() -> None:
    async with console(_cluster(holds=asyncio.Event()), acts=True) as shown:
        headers = {"Origin": shown.url}
        url = f"{shown.url}/console/actions/copy"
        async with shown.session.post(url, json=COPY, headers=headers) as answer:
            await answer.content.readline()
        await until(lambda: "copy is given up" in shown.shown.asked)


@contextlib.asynccontextmanager
async def _by_hand(shown: Console, body: bytes, size: int) -> AsyncIterator[asyncio.StreamReader]:
    """A copy whose client has sent this of its body, and reads only what the test reads."""
    reader, writer = await asyncio.open_connection(HOST, shown.port)
    head = f"POST /console/actions/copy HTTP/1.1\r\nHost: {HOST}:{shown.port}\r\n"
    head += f"Origin: {shown.url}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode() + body)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_a_page_that_takes_no_lines_ends_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LINE_SECONDS", 0.1)
    long = pb.CopyProgress(topic="orders", doing="x" * (1 << 20))
    copied = [pb.CopyClosedResponse(progress=long)] * 64
    cluster, body = _cluster(copied=copied), json.dumps(COPY).encode()
    async with console(cluster, acts=True) as shown:
        async with _by_hand(shown, body, len(body)) as reader:
            await until(lambda: "copy is given up" in cluster.asked)
            assert b'"end"' not in await reader.read()
        assert (await shown.act("freeze", _FREEZE))[0] == 200


async def test_a_body_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_SECONDS", 0.1)
    async with console(_cluster(), acts=True) as shown, _by_hand(shown, b"{", 100) as reader:
        assert (await reader.readline()).split()[1] == b"400"
        assert shown.shown.commands == []


async def test_only_so_many_copies_run_at_a_time_and_no_freeze_waits_for_them() -> None:
    cluster = _cluster(holds=asyncio.Event())
    async with console(cluster, acts=True) as shown, asyncio.TaskGroup() as group:
        running = [group.create_task(shown.act("copy", COPY)) for _ in range(RUNNING_MAX)]
        await until(lambda: len(cluster.commands) == RUNNING_MAX)
        assert (await shown.act("verify", {"topic": "orders"}))[0] == 503
        assert (await shown.act("freeze", _FREEZE))[0] == 200
        cluster.holds.set()
        assert {(await one)[0] for one in running} == {200}
        assert (await shown.act("verify", {"topic": "orders"}))[0] == 200


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "none"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Content_Type": "text/plain"}, 400),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 400),
    ],
)
@pytest.mark.parametrize("allows_all", [False, True])
async def test_no_other_page_can_do_anything(
    changed: dict[str, str], status: int, allows_all: bool
) -> None:
    """Without tokens, and so also by a name elsewhere that leads to this machine."""
    async with console(_cluster(), acts=True, allows_all=allows_all) as shown:
        assert (await shown.act("freeze", _FREEZE, **changed))[0] == status
        assert shown.shown.commands == []
        assert (await shown.act("freeze", _FREEZE))[0] == 200


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("purge", {"topic": "orders"}),
        ("unfreeze", {"topic": "orders"}),
        ("copy", {}),
        ("copy", {"topic": "../x"}),
        ("copy", {"topic": ["orders"]}),
        ("copy", {"topic": "orders", "partition": -1}),
        ("copy", {"topic": "orders", "partition": 1 << 31}),
        ("copy", {"topic": "orders", "partition": True}),
        ("copy", []),
        ("copy", "no json"),
        pytest.param("copy", "[" * 10_000, id="deep"),
        ("freeze", {"topic": "orders"}),
        ("freeze", {"why": "all"}),
        ("freeze", {"topic": "orders", "why": "x" * 501}),
        ("freeze", '{"topic": "orders", "why": "\\ud800"}'),
        ("undo", {"topic": "orders", "partition": None}),
        ("copy-limit", {"bytes": None}),
        ("copy-limit", {"bytes": 1.5}),
        ("copy-limit", {"bytes": 1 << 63}),
    ],
)
async def test_wrong_requests_do_nothing(name: str, fields: Any) -> None:
    async with console(_cluster(), acts=True) as shown:
        status, [refused] = await shown.act(name, fields)
        assert status in (400, 404) and refused["error"]
        assert shown.shown.commands == []


async def test_a_token_of_http_is_none_of_an_api_that_asks_for_certificates() -> None:
    tokens = lambda: ("of-http",)  # noqa: E731
    async with console(_cluster(), acts=True, http_tokens=tokens, api_is_closed=True) as shown:
        assert (await shown.get("cluster", "of-http"))[0] == 200
        status, [refused] = await shown.act("freeze", _FREEZE, "of-http")
        assert status == 403 and "use the command" in refused["error"]
    async with console(_cluster(), acts=True, http_tokens=tokens) as shown:
        assert (await shown.act("freeze", _FREEZE))[0] == 401
        assert (await shown.act("freeze", _FREEZE, "of-http"))[0] == 200
        assert len(shown.shown.commands) == 1


class Audit:
    """What would be written to the audit log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    async def command_given(self, **line: Any) -> None:
        self.lines.append(line)


async def _as(shown: Console, token: str | None) -> dict[str, int]:
    given: dict[str, dict[str, Any]] = {
        "copy": COPY,
        "verify": {"topic": "orders"},
        "copy-limit": {"bytes": 1 << 20},
        "undo": {"topic": "orders"},
        "freeze": _FREEZE,
    }
    return {name: (await shown.act(name, fields, token))[0] for name, fields in given.items()}


async def test_rights_and_audit_are_those_of_the_api() -> None:
    principals = principals_of(
        {
            "reader": {"tokens": [token_hash("reader-token")], "topics": {"orders": ["read"]}},
            "operator": {"tokens": [token_hash("op-token")], "topics": {"orders": ["operate"]}},
            "admin": {"tokens": [token_hash("admin-token")], "topics": {"*": ["admin"]}},
        }
    )
    gate, audit = Gate(lambda: ("services",), lambda: principals), Audit()
    authorization = Authorization(
        gate=gate,
        authorizer=FileAuthorizer(lambda: principals),
        names=SettingsTopicNames(ServiceUnderTest(Cluster(), node_id=1).settings, 1_000),
        audit=audit,
        clock=ManualClock(),
    )
    async with console(
        _cluster(), acts=True, gate=gate, api_asks=True, authorization=authorization
    ) as shown:
        assert set((await _as(shown, None)).values()) == {401}
        assert set((await _as(shown, "wrong")).values()) == {401}
        assert set((await _as(shown, "reader-token")).values()) == {403}
        assert shown.shown.commands == [] and audit.lines == []
        assert await _as(shown, "op-token") == {
            "copy": 200,
            "verify": 200,
            "copy-limit": 403,
            "undo": 403,
            "freeze": 200,
        }
        assert [line["command"] for line in audit.lines] == ["CopyClosed", "Freeze"]
        assert audit.lines[1] == {
            "command": "Freeze",
            "by": "operator",
            "is_proven": True,
            "address": "127.0.0.1",
            "request": _FREEZE,
        }
        assert set((await _as(shown, "admin-token")).values()) == {200}
