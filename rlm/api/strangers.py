"""Bounds what callers cost that nobody knows: no token, or none that counts.

All calls of a server share one number of calls. A call whose token does not let it in is refused
before its message comes: otherwise it could keep its slot for as long as it sends none. Health and
reflection answer everybody, so they have a few slots of their own. This module must not know what
the services do.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from rlm.api.call_metadata import TOKEN_KEY
from rlm.api.calls import Answering, Gate
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.status import Unauthenticated

OPEN_SERVICES = (health.SERVICE_NAME, reflection.SERVICE_NAME)
"""Asked by load balancers and tools that know no token: they show which calls there are."""
OPEN_CALLS_MAX = 16
"""Of their calls with one answer, and as many of those that watch, which may never end."""
MESSAGE_TIMEOUT_S = 5.0
"""How long a call of theirs may be without its message."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continue: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
_Answer = Callable[[AsyncIterator[Any], Context], Awaitable[Any]]


class Strangers(grpc.aio.ServerInterceptor):
    """Stands before all other interceptors. `gate` None: everybody is admitted.
    `knows_certificates`: TLS lets nobody connect without a certificate.
    """

    def __init__(self, gate: Gate | None, *, knows_certificates: bool) -> None:
        self._gate = gate
        self._knows_certificates = knows_certificates
        self._open: Counter[bool] = Counter()
        self._bounded: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> "Handler | None":
        """The handler of the method, or one that refuses."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if method.split("/")[1] in OPEN_SERVICES:
            if method not in self._bounded:
                self._bounded[method] = self._within_bounds(handler)
            return self._bounded[method]
        if self._gate is None:
            return handler
        try:
            self._gate.refuse_token(_shown(handler_call_details), self._knows_certificates)
        except Unauthenticated as error:
            return _refusing(self._gate, operation_of(method), error)
        return handler

    def _within_bounds(self, handler: Handler) -> Handler:
        watches = handler.response_streaming
        serve = _answers_of(handler) if watches else _answer_of(handler)

        async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
            if self._open[watches] >= OPEN_CALLS_MAX:
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"health and reflection have {OPEN_CALLS_MAX} such calls at a time",
                )
            self._open[watches] += 1
            try:
                return await serve(requests, context)
            finally:
                self._open[watches] -= 1

        made = grpc.stream_stream_rpc_method_handler if watches else _one_answer
        return made(answer, handler.request_deserializer, handler.response_serializer)


_one_answer = grpc.stream_unary_rpc_method_handler
"""Of handlers that take a stream gRPC knows before the message of a call has come."""


def _answer_of(handler: Any) -> _Answer:
    async def serve(requests: AsyncIterator[Any], context: Context) -> Any:
        return await handler.unary_unary(await _message(requests, context), context)

    return serve


def _answers_of(handler: Any) -> _Answer:
    async def serve(requests: AsyncIterator[Any], context: Context) -> None:
        if handler.request_streaming:
            found = handler.stream_stream(requests, context)
        else:
            found = handler.unary_stream(await _message(requests, context), context)
        if hasattr(found, "__aiter__"):
            async for one in found:
                await context.write(one)
        else:
            await found

    return serve


async def _message(requests: AsyncIterator[Any], context: Context) -> Any:
    """The one message of a call."""
    try:
        async with asyncio.timeout(MESSAGE_TIMEOUT_S):
            async for request in requests:
                return request
    except TimeoutError:
        pass
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has sent no message")


def _shown(details: grpc.HandlerCallDetails) -> str | None:
    """The token of a call, as `Gate.admit` reads it."""
    found = [value for key, value in details.invocation_metadata or () if key == TOKEN_KEY]
    return found[-1] if found and isinstance(found[-1], str) else None


def operation_of(method: str) -> str:
    """The name of a method by its path."""
    return method.rpartition("/")[2]


def _refusing(gate: Gate, operation: str, error: Unauthenticated) -> Handler:
    async def refuse(requests: AsyncIterator[Any], context: Context) -> Any:
        async with Answering(gate, context, operation):
            raise error

    return _one_answer(refuse)
