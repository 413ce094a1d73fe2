"""kip405's errors <-> gRPC statuses with a typed detail (proto/rsm_plugins/v1/errors.proto has the
table).

The detail travels in google.rpc.Status (`grpc-status-details-bin`). Errors are translated once:
here.
"""

from typing import cast

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from kip405.errors import ErrorKind, Invalid, RemoteStorageError, error_of_kind, kind_of_status
from rsm_plugins.v1 import errors_pb2

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
    """A call that names no principal; Invalid for the caller, with its own status code."""


def status_of_error(error: RemoteStorageError) -> tuple[grpc.StatusCode, str, Metadata]:
    """Status code, message and trailing metadata that carry an error."""
    code = (
        grpc.StatusCode.UNAUTHENTICATED
        if isinstance(error, Unauthenticated)
        else grpc.StatusCode[error.kind.value]
    )
    detail = detail_of_error(error)
    what = detail.what
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = code.value[0]
    status = rpc_status.to_status(status_pb2.Status(code=number, message=what, details=[packed]))
    metadata = status.trailing_metadata or ()
    return code, what, tuple((str(key), value) for key, value in metadata)


def detail_of_error(error: RemoteStorageError) -> errors_pb2.ErrorDetail:
    """The error as a message."""
    what = str(error)[:WHAT_MAX]
    return errors_pb2.ErrorDetail(kind=_KINDS[error.kind], retriable=error.retriable, what=what)


def error_of_detail(detail: errors_pb2.ErrorDetail) -> RemoteStorageError:
    """The error again; a kind this side does not know is Internal."""
    return error_of_kind(_BY_NUMBER.get(detail.kind, ErrorKind.INTERNAL), detail.what)


def error_of_call(call: grpc.aio.AioRpcError, operation: str, target: str) -> RemoteStorageError:
    """The error a failed call stands for; where no detail came along the status code decides."""
    code: grpc.StatusCode = call.code()
    detail = _detail(call)
    if detail is not None:
        return error_of_kind(detail[0], detail[1])
    text = call.details() or code.name
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = "no answer before the deadline; the outcome is unknown"
    kind = kind_of_status(code.name)
    return error_of_kind(kind, f"plugin {target}: {operation}: {text} ({code.name})")


def is_lost_status(call: grpc.aio.AioRpcError) -> bool:
    """Whether a failed write took the place of the status that the server had sent meanwhile.

    grpc.aio answers INTERNAL of its own when the peer closes a stream that is being written to.
    """
    return call.code() is grpc.StatusCode.INTERNAL and _detail(call) is None


def _detail(call: grpc.aio.AioRpcError) -> tuple[ErrorKind, str] | None:
    try:
        status = rpc_status.from_call(cast(grpc.Call, call))
    except ValueError:
        return None
    for packed in status.details if status is not None else ():
        detail = errors_pb2.ErrorDetail()
        if packed.Unpack(detail) and detail.kind in _BY_NUMBER:
            return _BY_NUMBER[detail.kind], detail.what
    return None
