"""Authorises every call of the API before its service sees it, and writes down every command.

One interceptor stands before all services, so no method can forget it. A method without a row in
rlm.api.method_rights is refused. Long answers are checked again while they are sent: whoever loses
the right in the middle of a read, or whose token is taken back, gets no more records. A call that
a service has forwarded was authorised where it came in. Without an authorizer every caller that the
gate admits has every right, and only commands are intercepted, for their line in the audit log.
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from kip405.errors import Invalid, NotFound, RemoteStorageError
from kip405.topic_names import checked_name
from rlm.api.authorizers import Authorizer
from rlm.api.calls import Answering, Caller, Gate
from rlm.api.method_rights import METHOD_RULES, MethodRule, Sees, TopicNames
from rlm.api.ports import CommandAudit
from rlm.api.strangers import OPEN_SERVICES, Continue, Handler, operation_of
from rlm.clock import Clock
from rlm.plans.api_rights import EVERY_TOPIC, ApiRight, Need
from rlm.remote_log.topic_refs import topic_id_of, topic_records
from rlm.topics.ports import Settings
from rlm.v1 import admin_pb2, fetch_pb2
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.status import PermissionDenied, Unauthenticated

CHECK_AGAIN_MS = 1_000
AUDIT_WAIT_MS = 1_000
"""How long a command that is carried out without its line too waits for a disk that hangs."""
REQUEST_SHOWN_MAX_BYTES = 16 << 10
LACKS_SHOWN_MAX = 400
"""Characters of the right that a caller lacks: more than the longest name of a topic needs."""

log = structlog.get_logger(__name__)


class SettingsTopicNames:
    """Resolves ids of topics by the settings; implements TopicNames."""

    def __init__(self, settings: Settings, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._barrier_deadline_ms = barrier_deadline_ms

    async def of_ref(self, ref: fetch_pb2.TopicRef) -> str:
        """See TopicNames. Invalid where neither name nor id is given."""
        if ref.WhichOneof("topic") == "name":
            return checked_name(ref.name)
        if ref.WhichOneof("topic") != "topic_id":
            raise Invalid("the call names no topic: give a name or a topic id")
        topic_id = topic_id_of(ref)
        record = self._settings.view.topic(topic_id)
        if record is None:
            await self._settings.barrier(self._barrier_deadline_ms)
            record = self._settings.view.topic(topic_id)
        if record is None:
            raise unknown_topic_id(ref)
        return record.name

    def meant_by(self, text: str) -> tuple[str, ...]:
        """See TopicNames."""
        records = topic_records(self._settings.view.records())
        names = {one.name for one in records if text in (one.name, str(one.topic_id))}
        return tuple(sorted(names)) or (text,)


async def needs_of(rule: MethodRule, request: Any, names: TopicNames) -> tuple[Need, ...]:
    """What a request needs. NotFound: it names a topic by an id that is not known."""
    if rule.by_ref is None:
        return tuple(rule.needs(request, names))
    return (Need(right=rule.by_ref, topic=await names.of_ref(request.topic)),)


def unknown_topic_id(ref: fetch_pb2.TopicRef) -> NotFound:
    """What a caller learns of an id that is unknown, or of a topic that it may not see."""
    return NotFound(f"no topic has the id {topic_id_of(ref)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call to be authorised."""

    method: str
    rule: MethodRule
    request: Any
    caller: Caller


class Authorization(grpc.aio.ServerInterceptor):
    """`audit` None: the service has no commands (a reader)."""

    def __init__(
        self,
        *,
        gate: Gate,
        authorizer: Authorizer | None,
        names: TopicNames,
        audit: CommandAudit | None,
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._authorizer = authorizer
        self._names = names
        self._audit = audit
        self._clock = clock
        self._wrapped: dict[tuple[str, Handler], Handler] = {}
        """Of local calls a method has a handler of its own, which decodes no request."""

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> "Handler | None":
        """The handler of the method, behind this authorization."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.split("/")[1] in OPEN_SERVICES:
            return handler
        known = self._wrapped.get((method, handler))
        if known is None:
            known = self._wrapped[method, handler] = self._wrap(method, handler)
        return known

    def _wrap(self, method: str, handler: Handler) -> Handler:
        rule = METHOD_RULES.get(method)
        if rule is None:
            return _refusing(method, handler, self._gate)
        if self._authorizer is None and not rule.may_change:
            return handler
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream_of(method, rule, handler),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary_of(method, rule, handler),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _unary_of(self, method: str, rule: MethodRule, handler: Any) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> Any:
            async with Answering(self._gate, context, operation_of(method)) as caller:
                call = _Call(method=method, rule=rule, request=request, caller=caller)
                await self._begin(call)
                found = await handler.unary_unary(request, context)
                return await self._kept(call, found)

        return answer

    def _stream_of(self, method: str, rule: MethodRule, handler: Any) -> Callable[..., Any]:
        async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
            async with Answering(self._gate, context, operation_of(method)) as caller:
                call = _Call(method=method, rule=rule, request=request, caller=caller)
                await self._begin(call)
                checked_ms = self._clock.monotonic_ms()
                async with aclosing(handler.unary_stream(request, context)) as found:
                    async for one in found:
                        now_ms = self._clock.monotonic_ms()
                        if now_ms - checked_ms >= CHECK_AGAIN_MS:
                            checked_ms = now_ms
                            await self._authorise_again(call, context)
                        yield one

        return answers

    async def _begin(self, call: _Call) -> None:
        """What comes before anything of a call is done."""
        await self._authorise(call)
        await self._write_down(call)

    async def _authorise(self, call: _Call) -> None:
        """PermissionDenied: the caller lacks a right. NotFound: it may not even see the topic whose
        id it names.
        """
        if self._authorizer is None or not call.caller.is_proven:
            return
        needs = dict.fromkeys(await needs_of(call.rule, call.request, self._names))
        rights = await self._authorizer.rights_of(call.caller)
        lacking = next((need for need in needs if rights.lacks((need,))), None)
        if lacking is None:
            return
        lacks = str(lacking)[:LACKS_SHOWN_MAX]
        log.warning(
            "call_refused",
            method=call.method,
            principal=call.caller.principal,
            address=call.caller.address,
            lacks=lacks,
        )
        if _is_by_id(call) and rights.lacks([Need(right=ApiRight.DESCRIBE, topic=lacking.topic)]):
            raise unknown_topic_id(call.request.topic)
        raise PermissionDenied(
            f"{call.caller.principal} has no right {lacks}: {self._authorizer.words}"
        )

    async def _authorise_again(self, call: _Call, context: Context) -> None:
        """As `_authorise`, in the middle of an answer. Unauthenticated: what the caller has shown
        is nobody's by now, or somebody else's.
        """
        if self._authorizer is None:
            return
        if self._gate.admit(context) != call.caller:
            raise Unauthenticated(
                "the token or certificate of this call is of another caller by now: call again"
            )
        await self._authorise(call)

    async def _kept(self, call: _Call, answer: Any) -> Any:
        """The answer without what the caller may not see."""
        if call.rule.keep is None or self._authorizer is None or not call.caller.is_proven:
            return answer
        rights = await self._authorizer.rights_of(call.caller)

        @functools.cache
        def sees(topic: str) -> bool:
            return not rights.lacks([Need(right=ApiRight.DESCRIBE, topic=topic)])

        if sees(EVERY_TOPIC):
            return answer
        if isinstance(answer, bytes):
            return _kept_status(answer, call.rule, sees)
        call.rule.keep(answer, sees)
        return answer

    async def _write_down(self, call: _Call) -> None:
        """A line in the audit log for what changes something. Unavailable: it cannot be written, so
        the command is not given. Where nobody has proven who they are, and for what never waits, a
        disk that is full or hangs stops nothing: its line may still be written later.
        """
        if self._audit is None or not call.rule.changes(call.request):
            return
        if call.caller.is_forwarded and self._authorizer is not None:
            return  # a service says so, which has written it down; without rights anybody could
        is_needed = self._authorizer is not None and not call.rule.never_waits
        try:
            async with asyncio.timeout(None if is_needed else AUDIT_WAIT_MS / 1000):
                await self._audit.command_given(
                    command=call.method.rpartition("/")[2],
                    by=call.caller.principal,
                    is_proven=call.caller.is_proven,
                    address=call.caller.address,
                    request=_shown(call.request),
                )
        except (RemoteStorageError, TimeoutError) as error:
            if is_needed:
                raise
            why = str(error) or f"it is not written after {AUDIT_WAIT_MS} ms"
            log.error("command_not_audited", method=call.method, error=why)


def _is_by_id(call: _Call) -> bool:
    return call.rule.by_ref is not None and call.request.topic.WhichOneof("topic") == "topic_id"


def _kept_status(answer: bytes, rule: MethodRule, sees: Sees) -> bytes:
    """Status answers bytes (rlm.api.cluster_status)."""
    message = admin_pb2.StatusResponse.FromString(answer)
    if rule.keep is not None:
        rule.keep(message, sees)
    return message.SerializeToString()


def _refusing(method: str, handler: Handler, gate: Gate) -> Handler:
    """A method that has no row in the table: a bug of ours, refused to everybody."""

    async def refuse(request: Any, context: Context) -> Any:
        async with Answering(gate, context, operation_of(method)):
            raise PermissionDenied(f"{method}: nobody has a right to it")

    async def refuse_all(request: Any, context: Context) -> AsyncIterator[Any]:
        yield await refuse(request, context)

    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            refuse_all, request_deserializer=handler.request_deserializer
        )
    return grpc.unary_unary_rpc_method_handler(
        refuse, request_deserializer=handler.request_deserializer
    )


def _shown(request: Message) -> dict[str, Any]:
    """The request as it is written down; no request holds a secret."""
    fields: dict[str, Any] = MessageToDict(request, preserving_proto_field_name=True)
    size_bytes = len(json.dumps(fields))
    if size_bytes > REQUEST_SHOWN_MAX_BYTES:
        return {"topic": fields.get("topic", ""), "left_out_bytes": size_bytes}
    return fields
