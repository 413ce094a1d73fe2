"""kip405's errors <-> gRPC statuses of a plugin (proto/rsm_plugins/v1/errors.proto has the table).

Errors are translated once: here.
"""

import grpc

from kip405.errors import ErrorKind, RemoteStorageError, error_of_kind, kind_of_status
from kip405.tls_reasons import tls_reason
from rsm_plugins.error_details import ErrorDetails, Status
from rsm_plugins.v1 import errors_pb2

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
    """The error a failed call stands for; where no detail came along the status code decides."""
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
