"""Calls of the API from within the service, as the console makes them for a browser.

A browser cannot speak gRPC. A local call goes through the same gate, the same authorization and the
same services as one that comes by gRPC, so nothing is decided twice. It shows the token of the
browser's request, and never a certificate: those of HTTP are not known here. Only methods that are
named can be called: those that read in this module, those that change something in
rlm.api.local_commands. This module must not know who calls, or what is made of the answers.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar, cast

import grpc

from kip405.errors import Internal
from rlm.api.authorization import Authorization
from rlm.api.call_metadata import TOKEN_KEY
from rlm.api.strangers import Handler
from rlm.v1 import admin_pb2, fetch_pb2
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.principals import PRINCIPAL_KEY

A = TypeVar("A")
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
_FETCH = fetch_pb2.DESCRIPTOR.services_by_name["FetchService"].full_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCaller:
    """Who calls: `shown` is the value of its header Authorization, None where the API asks for no
    token; `address` is its host.
    """

    principal: str
    shown: str | None
    address: str


class AdminReads(Protocol):
    """What is called of rlm.v1.AdminService."""

    async def Status(self, request: Any, context: Context) -> Any: ...

    async def DescribeTopic(self, request: Any, context: Context) -> Any: ...

    async def ExplainPartition(self, request: Any, context: Context) -> Any: ...

    async def ListClients(self, request: Any, context: Context) -> Any: ...

    async def ListEvents(self, request: Any, context: Context) -> Any: ...

    async def ListDeletions(self, request: Any, context: Context) -> Any: ...

    async def DescribeCosts(self, request: Any, context: Context) -> Any: ...


class FetchReads(Protocol):
    """What is called of rlm.v1.FetchService."""

    def ListSegments(self, request: Any, context: Context) -> AsyncIterator[Any]: ...


class CallRefused(grpc.aio.AbortError):
    """How a local call ends that is not answered."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class LocalMethods:
    """Methods by their full names, behind the authorization; as of rlm.api.server.ApiServer."""

    def __init__(
        self, handlers: Mapping[str, Handler], authorization: Authorization | None
    ) -> None:
        self._handlers = handlers
        self._authorization = authorization

    async def answer(self, method: str, request: Any, caller: LocalCaller, kind: type[A]) -> A:
        """Of a method with one answer. CallRefused: there is none."""
        handler: Any = await self._handler(method)
        answer = await handler.unary_unary(request, _context_of(caller))
        if not isinstance(answer, kind):
            raise Internal(f"{method} answered {type(answer).__name__}")
        return answer

    async def answers(
        self, method: str, request: Any, caller: LocalCaller
    ) -> AsyncGenerator[Any, None]:
        """Of a method with many. Whoever closes the generator ends the call."""
        handler: Any = await self._handler(method)
        async with aclosing(handler.unary_stream(request, _context_of(caller))) as found:
            async for one in found:
                yield one

    async def _handler(self, method: str) -> Handler:
        """The handler behind the authorization."""
        handler = self._handlers[method]
        if self._authorization is None:
            return handler

        async def known(details: grpc.HandlerCallDetails) -> "Handler | None":
            return handler

        found = await self._authorization.intercept_service(known, _Details(method=method))
        if found is None:
            raise Internal(f"{method}: the authorization has no handler")
        return found


class LocalCalls:
    """Calls to this service that read."""

    def __init__(
        self,
        *,
        admin: AdminReads,
        fetch: FetchReads,
        authorization: Authorization | None,
    ) -> None:
        one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers: Mapping[str, Handler] = {
            f"/{ADMIN}/Status": one(admin.Status),
            f"/{ADMIN}/DescribeTopic": one(admin.DescribeTopic),
            f"/{ADMIN}/ExplainPartition": one(admin.ExplainPartition),
            f"/{ADMIN}/ListClients": one(admin.ListClients),
            f"/{ADMIN}/ListEvents": one(admin.ListEvents),
            f"/{ADMIN}/ListDeletions": one(admin.ListDeletions),
            f"/{ADMIN}/DescribeCosts": one(admin.DescribeCosts),
            f"/{_FETCH}/ListSegments": many(fetch.ListSegments),
        }
        self._methods = LocalMethods(handlers, authorization)

    async def status(self, request: admin_pb2.StatusRequest, caller: LocalCaller) -> bytes:
        """The answer as it goes over the wire. These calls raise CallRefused."""
        return await self._methods.answer(f"/{ADMIN}/Status", request, caller, bytes)

    async def describe_topic(
        self, request: admin_pb2.DescribeTopicRequest, caller: LocalCaller
    ) -> admin_pb2.TopicDescription:
        """See proto/rlm/v1/admin.proto, as of the calls below."""
        return await self._methods.answer(
            f"/{ADMIN}/DescribeTopic", request, caller, admin_pb2.TopicDescription
        )

    async def explain(
        self, request: admin_pb2.ExplainPartitionRequest, caller: LocalCaller
    ) -> admin_pb2.Explanation:
        return await self._methods.answer(
            f"/{ADMIN}/ExplainPartition", request, caller, admin_pb2.Explanation
        )

    async def clients(
        self, request: admin_pb2.ListClientsRequest, caller: LocalCaller
    ) -> admin_pb2.ListClientsResponse:
        return await self._methods.answer(
            f"/{ADMIN}/ListClients", request, caller, admin_pb2.ListClientsResponse
        )

    async def events(
        self, request: admin_pb2.ListEventsRequest, caller: LocalCaller
    ) -> admin_pb2.ListEventsResponse:
        return await self._methods.answer(
            f"/{ADMIN}/ListEvents", request, caller, admin_pb2.ListEventsResponse
        )

    async def deletions(
        self, request: admin_pb2.ListDeletionsRequest, caller: LocalCaller
    ) -> admin_pb2.ListDeletionsResponse:
        return await self._methods.answer(
            f"/{ADMIN}/ListDeletions", request, caller, admin_pb2.ListDeletionsResponse
        )

    async def costs(
        self, request: admin_pb2.DescribeCostsRequest, caller: LocalCaller
    ) -> admin_pb2.CostsResponse:
        return await self._methods.answer(
            f"/{ADMIN}/DescribeCosts", request, caller, admin_pb2.CostsResponse
        )

    async def segments(
        self, request: fetch_pb2.ListSegmentsRequest, caller: LocalCaller
    ) -> AsyncGenerator[fetch_pb2.Segment, None]:
        answers = self._methods.answers(f"/{_FETCH}/ListSegments", request, caller)
        async with aclosing(answers) as found:
            async for one in found:
                yield one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details(grpc.HandlerCallDetails):
    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


def _context_of(caller: LocalCaller) -> Context:
    return cast(Context, _LocalContext(caller))


class _LocalContext:
    """What the gate and the services ask of the context of such a call."""

    def __init__(self, caller: LocalCaller) -> None:
        self._caller = caller

    def invocation_metadata(self) -> Any:
        rows = [(PRINCIPAL_KEY, self._caller.principal)]
        if self._caller.shown is not None:
            rows.append((TOKEN_KEY, self._caller.shown))
        return tuple(rows)

    def peer(self) -> str:
        host = self._caller.address
        return f"ipv6:[{host}]:0" if ":" in host else f"ipv4:{host}:0"

    def auth_context(self) -> Mapping[str, Any]:
        return {}

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        raise CallRefused(code, details)
