"""kip405's errors <-> gRPC statuses with rlm.v1.ErrorDetail (proto/rlm/v1/errors.proto).

Errors are translated once: here, for servers and for clients.
"""

from typing import cast

import grpc

from kip405.errors import (
    ErrorKind,
    Fenced,
    RemoteStorageError,
    error_of_kind,
    kind_of_status,
)
from kip405.tls_reasons import tls_reason
from rlm.v1 import errors_pb2
from rsm_plugins.contract.status import ErrorDetails, Status

_DETAILS = ErrorDetails(errors_pb2.ErrorDetail, errors_pb2.ErrorKind)


class Elsewhere(Fenced):
    """Another service answers for the partition: ask `leader_address` (host:port, may be empty)."""

    def __init__(self, message: str, leader_address: str = "") -> None:
        super().__init__(message)
        self.leader_address = leader_address


def status_of_error(error: RemoteStorageError) -> Status:
    """Status code, message and trailing metadata that carry an error."""
    address = error.leader_address if isinstance(error, Elsewhere) else ""
    return _DETAILS.status_of(error, leader_address=address)


def error_of_call(call: grpc.RpcError, target: str) -> RemoteStorageError:
    """The error a failed call stands for; where no detail came along the status code decides."""
    detail = _DETAILS.found_in(call)
    if detail is not None:
        kind = _DETAILS.kind_of(detail) or ErrorKind.INTERNAL
        if kind is ErrorKind.FENCED:
            return Elsewhere(detail.what, detail.leader_address)
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
