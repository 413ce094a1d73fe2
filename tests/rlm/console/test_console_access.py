"""Who gets the console's page and its data, and what a browser may do with the page."""

import re

import pytest

from kip405.ids import Uuid
from rlm.api.authorization import Authorization, SettingsTopicNames
from rlm.api.authorizers import FileAuthorizer
from rlm.api.calls import Gate
from rlm.api.local_calls import LocalCaller
from rlm.api.principals import Principals, principals_of, token_hash
from rlm.console.routes import CALLER, read_assets
from rlm.v1 import admin_pb2 as pb
from tests.builders.clock import ManualClock
from tests.rlm.console.served import Console, ShownCluster, answers_of, console, row, service
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

NAMES = (
    "cluster",
    "topic",
    "partition",
    "segments",
    "segment",
    "explanation",
    "deletions",
    "clients",
    "kinds",
    "costs",
)
ID = Uuid(b"i" * 16)


def _cluster() -> ShownCluster:
    status = pb.StatusResponse(
        partitions=[row("orders", 0), row("payments", 0)],
        services=[service()],
        problems=[
            pb.Problem(kind="other", subject="payments-0", topic="payments", text="secret"),
            pb.Problem(kind="other", subject="node 1", text="about a host"),
        ],
    )
    return ShownCluster(status=status)


async def _statuses(shown: Console, token: str | None) -> set[int]:
    return {
        (await shown.get(f"{name}?topic=orders&partition=0&id={ID}", token))[0]
        for name in NAMES
        if name != "topic"
    }


async def test_without_tokens_everybody_on_loopback_reads() -> None:
    async with console(_cluster()) as shown:
        assert await _statuses(shown, None) == {200}
        for host in ("localhost:19094", "127.0.0.1", "[::1]:80", "localhost"):
            assert (await shown.get("cluster", host=host))[0] == 200, host


@pytest.mark.parametrize("host", ["evil.example:19094", "evil.example", "10.0.0.5:19094", ""])
async def test_a_name_that_leads_here_from_elsewhere_reads_nothing(host: str) -> None:
    async with console(_cluster()) as shown:
        status, found = await shown.get("cluster", host=host)
    assert status in (400, 403) and "topics" not in found


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_origin_makes_the_console_do_nothing(site: str) -> None:
    async with console(_cluster(), allows_all=True) as shown:
        url = f"{shown.url}/console/data/cluster"
        for where, status in ((site, 403), ("same-origin", 200), ("none", 200)):
            async with shown.session.get(url, headers={"Sec-Fetch-Site": where}) as answer:
                assert answer.status == status
        assert shown.shown.asked == ["status"]


async def test_the_token_of_the_api_is_asked_for() -> None:
    gate = Gate(lambda: ("new", "old"))
    async with console(
        _cluster(), gate=gate, api_asks=True, http_tokens=lambda: ("of-http",)
    ) as shown:
        for token in (None, "", "wrong", "of-http"):
            assert await _statuses(shown, token) == {401}
            _, found = await shown.get("cluster", token)
            assert found["asks_token"] and "orders" not in str(found)
        for token in ("new", "old"):
            assert await _statuses(shown, token) == {200}
        assert (await shown.get("cluster", "new", "rlm.example"))[0] == 200
        asked = [one for one in shown.shown.asked if one.startswith("status")]
        assert asked == ["status", "status orders"] * 2


async def test_the_token_of_http_is_asked_for_where_the_api_asks_for_none() -> None:
    async with console(_cluster(), http_tokens=lambda: ("of-http",), api_is_closed=True) as shown:
        assert await _statuses(shown, None) == {401}
        assert await _statuses(shown, "of-http") == {200}


async def test_an_api_that_admits_by_certificates_alone_opens_no_console() -> None:
    async with console(_cluster(), api_is_closed=True) as shown:
        assert await _statuses(shown, None) == {403}
        status, found = await shown.get("cluster", "anything")
        assert status == 403 and "http.token.file" in found["error"]
    async with console(_cluster(), api_is_closed=True, allows_all=True) as shown:
        assert await _statuses(shown, None) == {403}, "allow_insecure is no certificate"


async def test_with_allow_insecure_the_console_answers_under_every_name() -> None:
    async with console(_cluster(), allows_all=True) as shown:
        assert (await shown.get("cluster", host="rlm.example:19094"))[0] == 200


@pytest.mark.parametrize("tokens", [(), ("a",)])
async def test_a_token_that_the_api_does_not_ask_for_makes_no_caller(
    tokens: tuple[str, ...],
) -> None:
    async with console(_cluster(), http_tokens=lambda: tokens) as shown:
        for invented in ("a", "a", None, "b", "c"):
            await shown.get("cluster", invented)
        assert shown.shown.asked == ["status"]


async def test_a_status_for_a_caller_of_one_host_is_not_given_to_another() -> None:
    """Rights may be those of a host, as in Kafka's ACLs."""
    shown = _cluster()
    answers = answers_of(shown, Gate(lambda: ("a", "b")))
    for token in ("a", "b"):
        for host in ("10.0.0.7", "10.0.0.8") * 2:
            caller = LocalCaller(principal=CALLER, shown=f"Bearer {token}", address=host)
            await answers.answer("cluster", {}, caller)
    assert shown.asked == ["status"] * 4


def _principals() -> Principals:
    return principals_of(
        {
            "reader": {"tokens": [token_hash("reader-token")], "topics": {"orders": ["read"]}},
            "admin": {"tokens": [token_hash("admin-token")], "topics": {"*": ["admin"]}},
        }
    )


async def test_a_principal_sees_what_the_api_shows_it() -> None:
    principals = _principals()
    gate = Gate(lambda: ("services",), lambda: principals)
    settings = ServiceUnderTest(Cluster(), node_id=1).settings
    authorization = Authorization(
        gate=gate,
        authorizer=FileAuthorizer(lambda: principals),
        names=SettingsTopicNames(settings, 1_000),
        audit=None,
        clock=ManualClock(),
    )
    async with console(_cluster(), gate=gate, api_asks=True, authorization=authorization) as shown:
        assert (await shown.get("cluster"))[0] == 401
        _, found = await shown.get("cluster", "reader-token")
        assert [one["topic"] for one in found["topics"]["rows"]] == ["orders"]
        assert (found["services"], found["problems"]) == ([], [])
        for path in ("topic", "partition", "segments", "segment", "explanation"):
            of = f"topic=payments&partition=0&id={ID}"
            status, refused = await shown.get(f"{path}?{of}", "reader-token")
            assert status == 403 and "no right" in refused["error"]
        for path in ("clients", "clients?topic=orders", "costs"):
            assert (await shown.get(path, "reader-token"))[0] == 403
        assert (await shown.get("partition?topic=orders&partition=0", "reader-token"))[0] == 200
        for token in ("admin-token", "services"):
            _, found = await shown.get("cluster", token)
            assert len(found["topics"]["rows"]) == 2 and len(found["problems"]) == 2


async def test_the_page_is_for_everybody_and_loads_nothing_from_elsewhere() -> None:
    gate = Gate(lambda: ("t",))
    async with console(_cluster(), gate=gate, api_asks=True) as shown:
        async with shown.session.get(f"{shown.url}/") as answer:
            page = await answer.text()
            assert answer.status == 200 and answer.url.path == "/console/"
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy
            assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            etag = answer.headers["ETag"]
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|https?:", page)
        for name in re.findall(r'(?:src|href)="([\w.]+)"', page):
            async with shown.session.get(f"{shown.url}/console/{name}") as answer:
                assert answer.status == 200, name
        again = {"If-None-Match": etag}
        async with shown.session.get(f"{shown.url}/console/", headers=again) as answer:
            assert answer.status == 304
        for path in ("console/nothing.js", "console/data/nothing", "console/..%2Frows.py"):
            async with shown.session.get(
                f"{shown.url}/{path}", headers={"Authorization": "Bearer t"}
            ) as answer:
                assert answer.status == 404, path
        for path in ("data/cluster", "actions/copy"):
            async with shown.session.post(f"{shown.url}/console/{path}") as answer:
                assert answer.status in (404, 405), path


@pytest.mark.parametrize("name", sorted(read_assets()))
def test_scripts_make_no_markup_and_reach_nothing_else(name: str) -> None:
    text = read_assets()[name].body.decode()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in text
    for word in ("localStorage", "sessionStorage", "document.cookie", "indexedDB"):
        assert word not in text
    outside = [one for one in re.findall(r"https?://[\w.]+", text) if one != "http://www.w3.org"]
    assert outside == [] and "@import" not in text
