"""TLS of the API over real sockets: who is let in, whom peers trust, renewals, and what is said."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from grpc import aio

from kip405.errors import Invalid, RemoteStorageError, Unavailable
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Caller, TokenFile
from rlm.api.peers import Stubs
from rlm.api.server import ApiServer
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.contract.tls import Tls
from tests.builders.certificates import Authority, Certificate
from tests.builders.clock import ManualClock
from tests.rlm.api.harness import Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

HOST = "127.0.0.1"


def server_tls(shown: Certificate, clients: Authority | None = None) -> ServerTls:
    return ServerTls(
        cert_file=shown.cert_file,
        key_file=shown.key_file,
        client_ca_file=None if clients is None else clients.ca_file,
    )


def client_tls(authority: Authority, shown: Certificate | None = None, name: str = "") -> Tls:
    return Tls(
        ca_file=authority.ca_file,
        cert_file=None if shown is None else shown.cert_file,
        key_file=None if shown is None else shown.key_file,
        server_name=name,
    )


async def asked(node: Node, tls: Tls | None, token: str | None = None) -> str:
    """`ok`, or why the service did not answer, as a command would say it."""
    async with channel_to(node.address, tls) as channel:
        try:
            await AdminServiceStub(channel).ListTopics(
                pb.ListTopicsRequest(), metadata=call_metadata("me", token), timeout=60
            )
        except aio.AioRpcError as error:
            return str(error_of_call(error, "service at it"))
    return "ok"


async def test_each_wrong_way_to_call_has_its_words(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    tls = server_tls(authority.issue("service", HOST))
    async with api_node(Cluster(), tls=tls) as node:
        assert await asked(node, client_tls(authority)) == "ok"
        for wrong, words in (
            (client_tls(other), "of no authority that is trusted here"),
            (client_tls(authority, name="other.example"), "does not have the name dialled"),
            (None, "it may want TLS"),
        ):
            why = await asked(node, wrong)
            assert why.startswith("service at it: not reachable: ")
            assert words in why
    async with api_node(Cluster()) as plain:
        assert "it does not speak TLS" in await asked(plain, client_tls(authority))
    expired = server_tls(authority.issue("expired", HOST, is_expired=True))
    async with api_node(Cluster(), tls=expired) as node:
        assert "its certificate has expired" in await asked(node, client_tls(authority))


async def test_with_a_client_authority_only_its_clients_are_let_in(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    ours, foreign = clients.issue("ours"), authority.issue("foreign")
    old = clients.issue("old", is_expired=True)
    tls = server_tls(authority.issue("service", HOST), clients)
    async with api_node(Cluster(), tls=tls) as node:
        assert await asked(node, client_tls(authority, ours)) == "ok"
        for shown in (None, foreign, old):
            assert "a certificate it trusts" in await asked(node, client_tls(authority, shown))


async def test_the_token_is_asked_for_within_tls_and_changed_without_a_refusal(
    tmp_path: Path,
) -> None:
    authority, clock = Authority(tmp_path), ManualClock()
    tls, trusted = server_tls(authority.issue("service", HOST)), client_tls(authority)
    path = tmp_path / "token"
    path.write_text("old\n")
    async with api_node(Cluster(), tls=tls, tokens=TokenFile(path, clock)) as node:
        assert "shows no token, and one is needed" in await asked(node, trusted)
        assert "shows no valid token" in await asked(node, trusted, "new")
        assert await asked(node, trusted, "old") == "ok"
        path.write_text("old\nnew\n")
        await clock.sleep_ms(1_000)
        assert await asked(node, trusted, "old") == "ok"
        assert await asked(node, trusted, "new") == "ok"
        path.write_text("new\n")
        await clock.sleep_ms(1_000)
        assert "shows no valid token" in await asked(node, trusted, "old")
        assert await asked(node, trusted, "new") == "ok"


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    shown = authority.issue("service", HOST)
    async with api_node(Cluster(), tls=server_tls(shown)) as node:
        assert await asked(node, client_tls(authority)) == "ok"
        shown.cert_file.write_text("half a renewal")
        assert await asked(node, client_tls(authority)) == "ok"
        replace(shown, other.issue("service", HOST))
        assert await asked(node, client_tls(other)) == "ok"
        assert "of no authority" in await asked(node, client_tls(authority))


async def test_peers_call_each_other_with_tls_and_take_renewed_files(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    cluster = Cluster()
    shown, mine = authority.issue("service", HOST), clients.issue("peer")
    tls, peer_tls = server_tls(shown, clients), client_tls(authority, mine)
    async with api_node(cluster, node_id=1, tls=tls, peer_tls=peer_tls) as one:
        assert await topics_through(one) == "ok"
        replace(mine, authority.issue("unknown"))
        with pytest.raises(Unavailable, match="a certificate it trusts"):
            await topics_through(one)
        replace(mine, clients.issue("again"))
        assert await topics_through(one) == "ok"


async def test_a_call_that_runs_while_files_are_renewed_ends_well(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.issue("peer")
    tls = server_tls(authority.issue("service", HOST), authority)
    peer_tls = client_tls(authority, mine)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(stubs: Stubs, sent: Sequence[tuple[str, str]], timeout: float) -> str:
        entered.set()
        await go_on.wait()
        await stubs.admin.ListTopics(pb.ListTopicsRequest(), metadata=tuple(sent), timeout=timeout)
        return "ok"

    async with (
        api_node(Cluster(), tls=tls, peer_tls=peer_tls) as node,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(node.peers.ask(node.address, slow))
        await entered.wait()
        replace(mine, authority.issue("again"))
        assert await topics_through(node) == "ok"
        go_on.set()
        assert await running == "ok"


async def topics_through(node: Node) -> str:
    """The node asks itself as it would ask a peer."""

    async def call(stubs: Stubs, sent: tuple[tuple[str, str], ...], timeout: float) -> str:
        await stubs.admin.ListTopics(pb.ListTopicsRequest(), metadata=sent, timeout=timeout)
        return "ok"

    return await node.peers.forward(node.node_id, Caller(principal="ann"), call)


def replace(old: Certificate, new: Certificate) -> None:
    """As certificate managers do it: each file at once, one after the other."""
    for here, there in ((old.cert_file, new.cert_file), (old.key_file, new.key_file)):
        if here != there:
            shutil.copyfile(there, f"{here}.new")
            os.replace(f"{here}.new", here)


async def test_an_open_address_wants_tls_and_somebody_it_knows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.issue("service", HOST)
    async with api_node(Cluster()) as node:

        def server(tls: ServerTls | None, *, asks_tokens: bool) -> ApiServer:
            return ApiServer(
                admin=node.admin,
                fetch=node.fetch,
                listen="0.0.0.0:0",
                tls=tls,
                asks_tokens=asks_tokens,
            )

        for tls, asks_tokens in ((None, True), (server_tls(shown), False)):
            with pytest.raises(Invalid, match="is not loopback"):
                server(tls, asks_tokens=asks_tokens)
        for tls, asks_tokens in (
            (server_tls(shown), True),
            (server_tls(shown, authority), False),
        ):
            open_one = server(tls, asks_tokens=asks_tokens)
            assert (await open_one.start()).startswith("0.0.0.0:")
            await open_one.stop()


def test_a_lost_connection_is_not_taken_for_tls() -> None:
    class Lost(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str:
            return "Socket closed"

        def trailing_metadata(self) -> tuple[()]:
            return ()

    error: RemoteStorageError = error_of_call(Lost(), "service at it")
    assert str(error) == "service at it: Socket closed (UNAVAILABLE)"
