"""kip405's errors <-> gRPC statuses with rlm.v1.ErrorDetail (proto/rlm/v1/errors.proto).

The detail travels in google.rpc.Status (`grpc-status-details-bin`). Errors are translated once:
here, for servers and for clients.
"""

from typing import cast

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from kip405.errors import (
    ErrorKind,
    Fenced,
    Invalid,
    RemoteStorageError,
    error_of_kind,
    kind_of_status,
)
from rlm.v1 import errors_pb2

WHAT_MAX = 2000

_KINDS: dict[ErrorKind, errors_pb2.ErrorKind] = {
    ErrorKind.NOT_FOUND: errors_pb2.ERROR_KIND_NOT_FOUND,
    ErrorKind.UNAVAILABLE: errors_pb2.ERROR_KIND_UNAVAILABLE,
    ErrorKind.BUSY: errors_pb2.ERROR_KIND_BUSY,
    ErrorKind.INVALID: errors_pb2.ERROR_KIND_INVALID,
    ErrorKind.CORRUPT: errors_pb2.ERROR_KIND_CORRUPT,
    ErrorKind.FENCED: errors_pb2.ERROR_KIND_FENCED,
    ErrorKind.INTERNAL: errors_pb2.ERROR_KIND_INTERNAL,
}
_BY_NUMBER: dict[int, ErrorKind] = {number: kind for kind, number in _KINDS.items()}

Metadata = tuple[tuple[str, str | bytes], ...]


class Unauthenticated(Invalid):
    """A call without principal or with a wrong token; Invalid with its own status code."""


class Elsewhere(Fenced):
    """Another service answers for the partition: ask `leader_address` (host:port, may be empty)."""

    def __init__(self, message: str, leader_address: str = "") -> None:
        super().__init__(message)
        self.leader_address = leader_address


def status_of_error(error: RemoteStorageError) -> tuple[grpc.StatusCode, str, Metadata]:
    """Status code, message and trailing metadata that carry an error."""
    code = grpc.StatusCode[error.kind.value]
    if isinstance(error, Unauthenticated):
        code = grpc.StatusCode.UNAUTHENTICATED
    what = str(error)[:WHAT_MAX]
    detail = errors_pb2.ErrorDetail(
        kind=_KINDS[error.kind],
        retriable=error.retriable,
        what=what,
        leader_address=error.leader_address if isinstance(error, Elsewhere) else "",
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = code.value[0]
    status = rpc_status.to_status(status_pb2.Status(code=number, message=what, details=[packed]))
    metadata = status.trailing_metadata or ()
    return code, what, tuple((str(key), value) for key, value in metadata)


def error_of_call(call: grpc.RpcError, target: str) -> RemoteStorageError:
    """The error a failed call stands for; where no detail came along the status code decides."""
    failed = cast(grpc.Call, call)
    detail = _detail(failed)
    if detail is not None:
        kind = _BY_NUMBER[detail.kind]
        if kind is ErrorKind.FENCED:
            return Elsewhere(detail.what, detail.leader_address)
        return error_of_kind(kind, detail.what)
    code = failed.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = "no answer in time; whether it was done is not known"
    elif code is grpc.StatusCode.UNAVAILABLE:
        text = "not reachable"
    else:
        text = f"{failed.details() or 'failed'} ({code.name})"
    return error_of_kind(kind_of_status(code.name), f"service at {target}: {text}")


def _detail(call: grpc.Call) -> errors_pb2.ErrorDetail | None:
    try:
        status = rpc_status.from_call(call)
    except ValueError:
        return None
    for packed in status.details if status is not None else ():
        detail = errors_pb2.ErrorDetail()
        if packed.Unpack(detail) and detail.kind in _BY_NUMBER:
            return detail
    return None
