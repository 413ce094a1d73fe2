"""Translates kip405's errors to gRPC statuses and back; no other module does.

proto/rsm_plugins/v1/errors.proto has the table. A status has a typed detail in google.rpc.Status
(`grpc-status-details-bin`); the message type of the detail belongs to the service's own package,
with the same fields in each. This module must not know services.
"""

from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from kip405.errors import (
    ErrorKind,
    Invalid,
    RemoteStorageError,
    error_of_kind,
    kind_of_status,
    tls_reason,
)
from rsm_plugins.v1 import errors_pb2

WHAT_MAX = 2000

Metadata = tuple[tuple[str, str | bytes], ...]
Status = tuple[grpc.StatusCode, str, Metadata]
"""Code, message and trailing metadata that carry an error."""


class Unauthenticated(Invalid):
    """A call that is not admitted, because it has no principal or lacks a required token; an
    Invalid with a status code of its own.
    """


class ErrorKinds(Protocol):
    """The enum ErrorKind of a package's errors.proto."""

    def Value(self, name: str) -> Any: ...


D = TypeVar("D", bound=Message)


class ErrorDetails(Generic[D]):
    """Details of one package: its message ErrorDetail and its enum ErrorKind."""

    def __init__(self, message: type[D], kinds: ErrorKinds) -> None:
        self._message = message
        self._numbers = {kind: kinds.Value(f"ERROR_KIND_{kind.name}") for kind in ErrorKind}
        self._kinds = {number: kind for kind, number in self._numbers.items()}

    def detail_of(self, error: RemoteStorageError, **more: Any) -> D:
        """The error as a message; `more` are fields that only this package has."""
        what = str(error)[:WHAT_MAX]
        kind = self._numbers[error.kind]
        return self._message(kind=kind, retriable=error.retriable, what=what, **more)

    def kind_of(self, detail: D) -> ErrorKind | None:
        """None for a kind that this side does not know."""
        return self._kinds.get(cast(Any, detail).kind)

    def status_of(self, error: RemoteStorageError, **more: Any) -> Status:
        """What a server answers with."""
        code = (
            grpc.StatusCode.UNAUTHENTICATED
            if isinstance(error, Unauthenticated)
            else grpc.StatusCode[error.kind.value]
        )
        detail = self.detail_of(error, **more)
        what = cast(Any, detail).what
        packed = any_pb2.Any()
        packed.Pack(detail)
        number: int = code.value[0]
        message = status_pb2.Status(code=number, message=what, details=[packed])
        metadata = rpc_status.to_status(message).trailing_metadata or ()
        return code, what, tuple((str(key), value) for key, value in metadata)

    def found_in(self, call: grpc.RpcError) -> D | None:
        """The detail that came with a failed call, if one did whose kind is known."""
        try:
            status = rpc_status.from_call(cast(grpc.Call, call))
        except ValueError:
            return None
        for packed in status.details if status is not None else ():
            detail = self._message()
            if packed.Unpack(detail) and self.kind_of(detail) is not None:
                return detail
        return None


_DETAILS = ErrorDetails(errors_pb2.ErrorDetail, errors_pb2.ErrorKind)


def status_of_error(error: RemoteStorageError) -> Status:
    """Status code, message and trailing metadata that carry an error."""
    return _DETAILS.status_of(error)


def detail_of_error(error: RemoteStorageError) -> errors_pb2.ErrorDetail:
    """The error as a message."""
    return _DETAILS.detail_of(error)


def error_of_detail(detail: errors_pb2.ErrorDetail) -> RemoteStorageError:
    """The error again; a kind this side does not know is Internal."""
    return error_of_kind(_DETAILS.kind_of(detail) or ErrorKind.INTERNAL, detail.what)


def error_of_call(call: grpc.aio.AioRpcError, operation: str, target: str) -> RemoteStorageError:
    """The error that a failed call carries; without a detail, the status code decides."""
    code: grpc.StatusCode = call.code()
    detail = _DETAILS.found_in(call)
    if detail is not None:
        return error_of_detail(detail)
    text = tls_reason(call.details()) or call.details() or code.name
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = "no answer before the deadline; the outcome is unknown"
    kind = kind_of_status(code.name)
    return error_of_kind(kind, f"plugin {target}: {operation}: {text} ({code.name})")


def is_lost_status(call: grpc.aio.AioRpcError) -> bool:
    """Whether a failed write took the place of the status that the server had sent meanwhile.

    grpc.aio answers INTERNAL of its own when the peer closes a stream that is being written to.
    """
    return call.code() is grpc.StatusCode.INTERNAL and _DETAILS.found_in(call) is None
