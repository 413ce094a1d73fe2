"""H36: callers that nobody knows leave the slots of the API to those that are known."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rlm.api.calls import Gate, no_tokens
from rlm.api.server import CALLS_OF_A_CONNECTION_MAX, CONCURRENT_CALLS_MAX
from rlm.api.strangers import (
    OPEN_CALLS_MAX,
    WAITING_CALLS_OF_A_HOST_MAX,
    WATCHES_OF_A_HOST_MAX,
    Slots,
)
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import Unauthenticated
from tests.builders.certificates import Authority, Certificate
from tests.builders.log_dir import TOPIC
from tests.rlm.api.authorised import SERVICES, USUAL, Site, authorised_node
from tests.rlm.api.test_h36_grpc import FETCH, begun_calls
from tests.rlm.api.test_known_callers import known, who_is
from tests.rlm.api.test_tls import HOST, client_tls, server_tls
from tests.rlm.topics.cluster import Cluster

HealthStub: Any = health_pb2_grpc.HealthStub
CONNECTIONS = CONCURRENT_CALLS_MAX // CALLS_OF_A_CONNECTION_MAX
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
SERVING = health_pb2.HealthCheckResponse.SERVING


CHECK, FREEZE = b"/grpc.health.v1.Health/Check", b"/rlm.v1.AdminService/Freeze"
_HEADERS, _END_STREAM = 0x01, 0x01
_FRAME_HEAD_BYTES = 9


def wait_until_refused(stranger: socket.socket, count: int) -> None:
    """Until the server has ended so many calls of a connection; TimeoutError."""
    with stranger.makefile("rb") as received:
        while count:
            head = received.read(_FRAME_HEAD_BYTES)
            received.read(int.from_bytes(head[:3], "big"))
            count -= head[3] == _HEADERS and bool(head[4] & _END_STREAM)


@contextlib.asynccontextmanager
async def channels(address: str) -> AsyncIterator[list[aio.Channel]]:
    """With a connection each."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(aio.insecure_channel(address, options=own))
            for _ in range(CONNECTIONS)
        ]


async def freeze(site: Site) -> None:
    """Whoever is about to be refused may have its slot for a moment."""
    async with asyncio.timeout(60):
        while True:
            try:
                await site.call("Freeze", pb.FreezeRequest(topic=TOPIC, why="an audit"), SERVICES)
                return
            except aio.AioRpcError as error:
                assert error.code() is FULL
            await asyncio.sleep(0.1)


async def first_of(call: Any) -> grpc.StatusCode:
    """OK where an answer has come."""
    try:
        await call.read()
        return grpc.StatusCode.OK
    except aio.AioRpcError as error:
        return error.code()


async def test_h36_streams_that_never_end_leave_slots_to_those_with_a_token() -> None:
    async with authorised_node(Cluster()) as site, channels(site.address) as made:
        request = health_pb2.HealthCheckRequest()
        calls: list[Any] = []
        codes = []
        for channel in made:
            for _ in range(CALLS_OF_A_CONNECTION_MAX):
                calls.append(HealthStub(channel).Watch(request))
                codes.append(await first_of(calls[-1]))  # of hundreds at once gRPC cancels some
        assert codes.count(grpc.StatusCode.OK) == WATCHES_OF_A_HOST_MAX < OPEN_CALLS_MAX
        assert codes.count(FULL) == CONCURRENT_CALLS_MAX - WATCHES_OF_A_HOST_MAX
        await freeze(site)
        checked = await HealthStub(made[0]).Check(request)
        assert checked.status == SERVING  # a call with one answer has slots of its own
        for call in calls:
            call.cancel()
        async with asyncio.timeout(60):
            watch = HealthStub(made[0]).Watch
            while await first_of(watch(request)) is FULL:  # noqa: ASYNC110 - of what gRPC ends
                await asyncio.sleep(0.01)


async def test_h36_calls_without_a_message_and_a_token_leave_slots_to_those_with_one() -> None:
    async with authorised_node(Cluster()) as site:
        host, _, port = site.address.rpartition(":")
        strangers = []
        for _ in range(CONNECTIONS):
            strangers.append(socket.create_connection((host, int(port))))
            strangers[-1].sendall(begun_calls(CALLS_OF_A_CONNECTION_MAX))
            strangers[-1].settimeout(60)
            await asyncio.to_thread(wait_until_refused, strangers[-1], CALLS_OF_A_CONNECTION_MAX)
        await freeze(site)
        for stranger in strangers:
            stranger.close()


def begin_calls(address: str, host: str, count: int, path: bytes) -> socket.socket:
    """From another host, without any message."""
    name, _, port = address.rpartition(":")
    made = socket.create_connection((name, int(port)), source_address=(host, 0))
    made.sendall(begun_calls(count, path))
    made.settimeout(60)
    return made


async def test_h36_health_checks_without_a_message_leave_slots_to_those_with_one() -> None:
    async with authorised_node(Cluster()) as site, channels(site.address) as made:
        request = health_pb2.HealthCheckRequest()
        count = WAITING_CALLS_OF_A_HOST_MAX
        stranger = begin_calls(site.address, "127.0.0.2", count + 1, CHECK)
        await asyncio.to_thread(wait_until_refused, stranger, 1)
        assert (await HealthStub(made[0]).Check(request)).status == SERVING
        await asyncio.to_thread(wait_until_refused, stranger, count)  # none comes in time
        stranger.close()


class From:
    """A call from this host."""

    def __init__(self, host: str) -> None:
        self._host = host

    def peer(self) -> str:
        return f"ipv4:{self._host}:40000"

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise aio.AbortError(details)


async def test_slots_are_those_of_all_hosts_and_of_each_and_come_back() -> None:
    slots = Slots(3, 2, "calls")
    contexts: list[Any] = [From(host) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]
    one, other, third = contexts

    async def refused(context: Any) -> bool:
        try:
            async with slots.one(context):
                return False
        except aio.AbortError:
            return True

    for _ in range(2):
        async with slots.one(one):
            assert not await refused(one)
            async with slots.one(one):
                assert await refused(one)
                assert not await refused(other)
                async with slots.one(other):
                    assert await refused(third)
                assert not await refused(third)


def begin_secured_calls(address: str, shown: Certificate, count: int, path: bytes) -> ssl.SSLSocket:
    """By somebody with a certificate, without any message."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(shown.cert_file, shown.key_file)
    context.set_alpn_protocols(["h2"])
    name, _, port = address.rpartition(":")
    made = context.wrap_socket(socket.create_connection((name, int(port))))
    made.sendall(begun_calls(count, path))
    made.settimeout(60)
    return made


@pytest.mark.parametrize("path", [FETCH, FREEZE], ids=["streams", "one answer"])
async def test_h36_whose_certificate_is_nobodys_is_refused_before_its_message_comes(
    tmp_path: Path, path: bytes
) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    tls = server_tls(authority.issue("service", HOST), clients)
    etl, other = clients.issue("etl"), clients.issue("other")
    async with authorised_node(Cluster(), known=known(), tls=tls) as site:
        strangers = [
            begin_secured_calls(site.address, other, CALLS_OF_A_CONNECTION_MAX, path)
            for _ in range(CONNECTIONS)
        ]
        for stranger in strangers:
            await asyncio.to_thread(wait_until_refused, stranger, CALLS_OF_A_CONNECTION_MAX)
        assert await who_is(site.address, client_tls(authority, etl), None) == "User:etl"
        slow = begin_secured_calls(site.address, etl, 1, path)
        await asyncio.to_thread(wait_until_refused, slow, 1)  # it has sent no message in time
        for stranger in (*strangers, slow):
            stranger.close()


@pytest.mark.parametrize("knows_certificates", [False, True])
def test_a_token_that_does_not_let_in_is_refused_by_itself(knows_certificates: bool) -> None:
    by_token = Gate(lambda: ("right",))
    by_principal = Gate(lambda: (SERVICES,), lambda: USUAL)
    for gate, good, bad in (
        (by_token, ["Bearer right"], ["Bearer wrong", "right", None]),
        (by_principal, [f"Bearer {SERVICES}", "Bearer reader-token"], ["Bearer right", ""]),
        (Gate(no_tokens), ["Bearer any", None], []),
    ):
        for shown in good:
            gate.refuse_token(shown, knows_certificates)
        for shown in bad:
            with pytest.raises(Unauthenticated, match=r"no valid token|no token"):
                gate.refuse_token(shown, knows_certificates)
    if knows_certificates:  # which the call is looked at for
        by_principal.refuse_token(None, knows_certificates)
        return
    with pytest.raises(Unauthenticated, match="neither a token"):
        by_principal.refuse_token(None, knows_certificates)
