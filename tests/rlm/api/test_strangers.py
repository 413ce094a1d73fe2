"""H36: callers that nobody knows leave the slots of the API to those that are known."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rlm.api.calls import Gate, no_tokens
from rlm.api.server import CALLS_OF_A_CONNECTION_MAX, CONCURRENT_CALLS_MAX
from rlm.api.strangers import OPEN_CALLS_MAX
from rlm.v1 import admin_pb2 as pb
from rsm_plugins.contract.status import Unauthenticated
from tests.builders.log_dir import TOPIC
from tests.rlm.api.authorised import SERVICES, USUAL, Site, authorised_node
from tests.rlm.api.test_h36_grpc import begun_calls
from tests.rlm.topics.world import Cluster

HealthStub: Any = health_pb2_grpc.HealthStub
CONNECTIONS = CONCURRENT_CALLS_MAX // CALLS_OF_A_CONNECTION_MAX
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
SERVING = health_pb2.HealthCheckResponse.SERVING


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
        assert codes.count(grpc.StatusCode.OK) == OPEN_CALLS_MAX
        assert codes.count(FULL) == CONCURRENT_CALLS_MAX - OPEN_CALLS_MAX
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
