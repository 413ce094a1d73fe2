"""Authenticates calls of the API, and translates errors to gRPC statuses and back.

A call names a principal, and shows a token if tokens are configured. The errors of kip405 are
translated only here, for servers and for clients: to gRPC statuses with rlm.v1.ErrorDetail
(proto/rlm/v1/errors.proto).
"""

import hmac
from dataclasses import dataclass
from typing import cast

import grpc

from kip405.errors import (
    ErrorKind,
    Fenced,
    RemoteStorageError,
    error_of_kind,
    kind_of_status,
    tls_reason,
)
from rlm.api.tokens import Tokens, TokenSource, no_tokens
from rlm.remote_log.reads import OffsetOutOfRange
from rlm.v1 import errors_pb2
from rsm_plugins.contract.answering import PRINCIPAL_KEY, Answered, Context, principal_of
from rsm_plugins.contract.status import ErrorDetails, Status, Unauthenticated

_DETAILS = ErrorDetails(errors_pb2.ErrorDetail, errors_pb2.ErrorKind)


class Elsewhere(Fenced):
    """Another service answers for the partition: ask `leader_address` (host:port, may be empty)."""

    def __init__(self, message: str, leader_address: str = "") -> None:
        super().__init__(message)
        self.leader_address = leader_address


def status_of_error(error: RemoteStorageError) -> Status:
    """Status code, message and trailing metadata that carry an error."""
    if isinstance(error, Elsewhere):
        return _DETAILS.status_of(error, leader_address=error.leader_address)
    if isinstance(error, OffsetOutOfRange):
        return _DETAILS.status_of(
            error, log_start_offset=error.log_start_offset, high_watermark=error.high_watermark
        )
    return _DETAILS.status_of(error)


def error_of_call(call: grpc.RpcError, target: str) -> RemoteStorageError:
    """The error that a failed call carries; without a detail, the status code decides."""
    detail = _DETAILS.found_in(call)
    if detail is not None:
        kind = _DETAILS.kind_of(detail) or ErrorKind.INTERNAL
        if kind is ErrorKind.FENCED:
            return Elsewhere(detail.what, detail.leader_address)
        below, beyond = detail.HasField("log_start_offset"), detail.HasField("high_watermark")
        if below or beyond:
            return OffsetOutOfRange(
                detail.what,
                log_start_offset=detail.log_start_offset if below else None,
                high_watermark=detail.high_watermark if beyond else None,
            )
        return error_of_kind(kind, detail.what)
    failed = cast(grpc.Call, call)
    code = failed.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = "no answer in time; whether it was done is not known"
    elif code is grpc.StatusCode.UNAVAILABLE:
        reason = tls_reason(failed.details())
        text = f"not reachable: {reason}" if reason else "not reachable"
    else:
        text = f"{failed.details() or 'failed'} ({code.name})"
    return error_of_kind(kind_of_status(code.name), f"service at {target}: {text}")


FORWARDED_KEY = "rlm-forwarded-by"
TOKEN_KEY = "authorization"  # noqa: S105 - the name of a header

__all__ = ["FORWARDED_KEY", "Answering", "Caller", "Context", "Gate", "call_metadata"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The principal of a call; `forwarded_by` is the service that forwarded the call, or empty."""

    principal: str
    forwarded_by: str = ""

    @property
    def is_forwarded(self) -> bool:
        return bool(self.forwarded_by)


class Gate:
    """Admits calls; with tokens configured, only calls that show one."""

    def __init__(self, tokens: TokenSource = no_tokens) -> None:
        self._tokens = tokens

    def admit(self, context: Context) -> Caller:
        """Unauthenticated without principal or with a wrong token."""
        metadata = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        tokens = self._tokens()
        if tokens and not _shows_one(metadata.get(TOKEN_KEY), tokens):
            raise Unauthenticated(
                "the call shows no valid token (authorization: Bearer ...)"
                if TOKEN_KEY in metadata
                else "the call shows no token, and one is needed (authorization: Bearer ...)"
            )
        principal = principal_of(context)
        return Caller(principal=principal, forwarded_by=metadata.get(FORWARDED_KEY, ""))


def _shows_one(shown: str | None, tokens: Tokens) -> bool:
    """Compares with all tokens in constant time, so that the time reveals nothing."""
    text = (shown or "").encode()
    same = [hmac.compare_digest(text, f"Bearer {token}".encode()) for token in tokens]
    return any(same)


def call_metadata(
    principal: str, token: str | None, forwarded_by: str = ""
) -> tuple[tuple[str, str], ...]:
    """Metadata that a client sends with a call."""
    rows = [(PRINCIPAL_KEY, principal)]
    if token is not None:
        rows.append((TOKEN_KEY, f"Bearer {token}"))
    if forwarded_by:
        rows.append((FORWARDED_KEY, forwarded_by))
    return tuple(rows)


class Answering(Answered[Caller]):
    """`async with Answering(gate, context, "fetch") as caller:` around the body of a call."""

    def __init__(self, gate: Gate, context: Context, operation: str) -> None:
        super().__init__(context, operation, admit=gate.admit, status_of=status_of_error)
