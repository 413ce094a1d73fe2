"""Bounds what callers cost that nobody knows: no token, or none that counts.

All calls of a server share one number of calls. A call whose token does not let it in is refused
before its message comes: otherwise it could keep its slot for as long as it sends none. So is one
without a token whose certificate is nobody's. Health and reflection answer everybody, so they have
a few slots of their own, which a call has only while it is answered; calls that watch, and calls
that have sent no message yet, are few of each host. This module must not know what the services do.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from rlm.api.call_metadata import TOKEN_KEY
from rlm.api.calls import Answering, Gate, address_of
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.status import Unauthenticated

OPEN_SERVICES = (health.SERVICE_NAME, reflection.SERVICE_NAME)
"""Asked by load balancers and tools that know no token: they show which calls there are."""
OPEN_CALLS_MAX = 16
"""Of their calls with one answer, and as many of those that watch, which may never end."""
WATCHES_OF_A_HOST_MAX = 4
WAITING_CALLS_MAX = 256
"""Of their calls with one answer, without a message so far. It comes with the call itself."""
WAITING_CALLS_OF_A_HOST_MAX = 64
MESSAGE_TIMEOUT_S = 2.0
"""How long a call of theirs may be without its message."""
KNOWN_MESSAGE_TIMEOUT_S = 5.0
"""How long a call of somebody who has shown a certificate may be without its message."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continue: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
_Answer = Callable[[AsyncIterator[Any], Context], Awaitable[Any]]


class Slots:
    """How many calls there may be at a time, of all hosts and of each."""

    def __init__(self, most: int, of_a_host: int, what: str) -> None:
        self._most, self._of_a_host, self._what = most, of_a_host, what
        self._taken: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def one(self, context: Context) -> AsyncIterator[None]:
        """Have one slot, or end the call."""
        host = address_of(context)
        if self._taken.total() >= self._most or self._taken[host] >= self._of_a_host:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"health and reflection have {self._most} {self._what} at a time, and "
                f"{self._of_a_host} of one host",
            )
        self._taken[host] += 1
        try:
            yield
        finally:
            self._taken[host] -= 1
            if not self._taken[host]:
                del self._taken[host]


class Strangers(grpc.aio.ServerInterceptor):
    """Stands before all other interceptors. `gate` None: everybody is admitted.
    `knows_certificates`: TLS lets nobody connect without a certificate.
    """

    def __init__(self, gate: Gate | None, *, knows_certificates: bool) -> None:
        self._gate = gate
        self._knows_certificates = knows_certificates
        self._waiting = Slots(
            WAITING_CALLS_MAX, WAITING_CALLS_OF_A_HOST_MAX, "calls without a message"
        )
        self._answered = Slots(OPEN_CALLS_MAX, OPEN_CALLS_MAX, "calls")
        self._watching = Slots(OPEN_CALLS_MAX, WATCHES_OF_A_HOST_MAX, "calls that watch")
        self._bounded: dict[str, Handler] = {}
        self._certified: dict[str, Handler] = {}

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
        shown = _shown(handler_call_details)
        try:
            self._gate.refuse_token(shown, self._knows_certificates)
        except Unauthenticated as error:
            return _refusing(self._gate, operation_of(method), error)
        if not self._gate.needs_certificate(shown):
            return handler
        if method not in self._certified:
            self._certified[method] = _of_certificates(self._gate, operation_of(method), handler)
        return self._certified[method]

    def _within_bounds(self, handler: Handler) -> Handler:
        return _taking_streams(
            handler, self._watch_of(handler) if handler.response_streaming else self._of(handler)
        )

    def _of(self, handler: Any) -> _Answer:
        async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
            async with self._waiting.one(context):
                message = await _message(requests, context, MESSAGE_TIMEOUT_S)
            async with self._answered.one(context):
                return await handler.unary_unary(message, context)

        return answer

    def _watch_of(self, handler: Any) -> _Answer:
        async def answer(requests: AsyncIterator[Any], context: Context) -> None:
            async with self._watching.one(context):
                if handler.request_streaming:
                    found = handler.stream_stream(requests, context)
                else:
                    message = await _message(requests, context, MESSAGE_TIMEOUT_S)
                    found = handler.unary_stream(message, context)
                if hasattr(found, "__aiter__"):
                    async for one in found:
                        await context.write(one)
                else:
                    await found

        return answer


def _taking_streams(handler: Handler, answer: Callable[..., Any]) -> Handler:
    """Of handlers that take a stream gRPC knows before the message of a call has come."""
    streams = grpc.stream_stream_rpc_method_handler
    made = streams if handler.response_streaming else grpc.stream_unary_rpc_method_handler
    return made(answer, handler.request_deserializer, handler.response_serializer)


def _of_certificates(gate: Gate, operation: str, handler: Any) -> Handler:
    """Whoever has shown nothing but a certificate is admitted before its message comes."""

    async def message(requests: AsyncIterator[Any], context: Context) -> Any:
        async with Answering(gate, context, operation):
            pass
        return await _message(requests, context, KNOWN_MESSAGE_TIMEOUT_S)

    async def answer(requests: AsyncIterator[Any], context: Context) -> Any:
        return await handler.unary_unary(await message(requests, context), context)

    async def answers(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        request = await message(requests, context)
        async with aclosing(handler.unary_stream(request, context)) as found:
            async for one in found:
                yield one

    return _taking_streams(handler, answers if handler.response_streaming else answer)


async def _message(requests: AsyncIterator[Any], context: Context, timeout_s: float) -> Any:
    """The one message of a call."""
    try:
        async with asyncio.timeout(timeout_s):
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

    return grpc.stream_unary_rpc_method_handler(refuse)
