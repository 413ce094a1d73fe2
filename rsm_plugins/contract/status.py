"""Translates kip405's errors to gRPC statuses and back, for plugins, services and all clients.

proto/kip405/v1/errors.proto has the table. A status carries one typed detail in google.rpc.Status
(`grpc-status-details-bin`). Spark executors import this module, so it must not know services, nor
import what only a service or plugin has installed.
"""

from typing import cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from kip405.errors import (
    Elsewhere,
    ErrorKind,
    Invalid,
    OffsetOutOfRange,
    RemoteStorageError,
    error_of_kind,
    kind_of_status,
    tls_reason,
)
from kip405.v1 import errors_pb2

WHAT_MAX = 2000
_METADATA_MAX_BYTES = 7_400
"""For the text of an error, which is sent three times. From 8 KiB of metadata on, gRPC answers the
client RESOURCE_EXHAUSTED instead: the error would be read as Busy.
"""

Metadata = tuple[tuple[str, str | bytes], ...]
Status = tuple[grpc.StatusCode, str, Metadata]
"""Code, message and trailing metadata that carry an error."""

_NUMBERS: dict[ErrorKind, errors_pb2.ErrorKind] = {
    ErrorKind.NOT_FOUND: errors_pb2.ERROR_KIND_NOT_FOUND,
    ErrorKind.UNAVAILABLE: errors_pb2.ERROR_KIND_UNAVAILABLE,
    ErrorKind.BUSY: errors_pb2.ERROR_KIND_BUSY,
    ErrorKind.INVALID: errors_pb2.ERROR_KIND_INVALID,
    ErrorKind.CORRUPT: errors_pb2.ERROR_KIND_CORRUPT,
    ErrorKind.FENCED: errors_pb2.ERROR_KIND_FENCED,
    ErrorKind.INTERNAL: errors_pb2.ERROR_KIND_INTERNAL,
}
_KINDS: dict[int, ErrorKind] = {number: kind for kind, number in _NUMBERS.items()}
_NAMES = frozenset(
    (
        errors_pb2.ErrorDetail.DESCRIPTOR.full_name,
        "rsm_plugins.v1.ErrorDetail",  # the same fields, of plugins of earlier versions
    )
)
_NEVER_CONNECTED = "failed to connect"
_NO_SUCH_HOST = ("hostname lookup error", "DNS resolution failed")


class Unauthenticated(Invalid):
    """A call that is not admitted, because it has no principal or lacks a required token; an
    Invalid with a status code of its own.
    """


class PermissionDenied(Invalid):
    """A call of a known caller that lacks a right; an Invalid with a status code of its own."""


def status_of_error(error: RemoteStorageError) -> Status:
    """The status that a server answers with."""
    code = grpc.StatusCode[error.kind.value]
    if isinstance(error, Unauthenticated):
        code = grpc.StatusCode.UNAUTHENTICATED
    elif isinstance(error, PermissionDenied):
        code = grpc.StatusCode.PERMISSION_DENIED
    detail = detail_of_error(error)
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = code.value[0]
    message = status_pb2.Status(code=number, message=detail.what, details=[packed])
    metadata = rpc_status.to_status(message).trailing_metadata or ()
    return code, detail.what, tuple((str(key), value) for key, value in metadata)


def detail_of_error(error: RemoteStorageError) -> errors_pb2.ErrorDetail:
    """The error as a message."""
    out_of_range = error if isinstance(error, OffsetOutOfRange) else None
    return errors_pb2.ErrorDetail(
        kind=_NUMBERS[error.kind],
        retriable=error.retriable,
        what=_fitting(str(error)),
        leader_address=error.leader_address if isinstance(error, Elsewhere) else "",
        log_start_offset=None if out_of_range is None else out_of_range.log_start_offset,
        high_watermark=None if out_of_range is None else out_of_range.high_watermark,
    )


def _fitting(text: str) -> str:
    """The beginning of the text that a status can carry; what is no Unicode becomes `?`."""
    text = text[:WHAT_MAX].encode(errors="replace").decode()
    left = float(_METADATA_MAX_BYTES)
    for length, sign in enumerate(text):
        size_bytes = len(sign.encode())
        is_plain = " " <= sign <= "~" and sign != "%"
        left -= size_bytes * ((1 if is_plain else 3) + 2 * 4 / 3)  # percent-encoded; twice base64
        if left < 0:
            return text[:length]
    return text


def error_of_detail(detail: errors_pb2.ErrorDetail) -> RemoteStorageError:
    """The error of a message; a kind that this side does not know is Internal."""
    kind = _KINDS.get(detail.kind, ErrorKind.INTERNAL)
    if kind is ErrorKind.FENCED and detail.leader_address:
        return Elsewhere(detail.what, detail.leader_address)
    log_start = detail.log_start_offset if detail.HasField("log_start_offset") else None
    high_watermark = detail.high_watermark if detail.HasField("high_watermark") else None
    if kind is ErrorKind.INVALID and (log_start, high_watermark) != (None, None):
        return OffsetOutOfRange(
            detail.what, log_start_offset=log_start, high_watermark=high_watermark
        )
    return error_of_kind(kind, detail.what)


def error_of_call(call: grpc.RpcError, server: str) -> RemoteStorageError:
    """The error that a failed call carries; without a detail, the status code decides.

    `server` begins the message of an error that the server did not send itself.
    """
    sent = sent_error(call)
    if sent is not None:
        return sent
    failed = cast(grpc.Call, call)
    code = failed.code()
    text = _text(code, failed.details() or "")
    return error_of_kind(kind_of_status(code.name), f"{server}: {text}")


def _text(code: grpc.StatusCode, details: str) -> str:
    """gRPC's own errors in words for an operator."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time; whether it was done is not known"
    if code is grpc.StatusCode.UNAVAILABLE and _NEVER_CONNECTED in details:
        cause = tls_reason(details) or details.rpartition(": ")[2]
        return f"not reachable: {cause}"
    if code is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NO_SUCH_HOST):
        return "not reachable: no address is known of this host name"
    return f"{details or 'failed'} ({code.name})"


def sent_error(call: grpc.RpcError) -> RemoteStorageError | None:
    """The error that the server has sent with a failed call; None where there is no detail, or one
    of a kind that this version does not know.
    """
    try:
        status = rpc_status.from_call(cast(grpc.Call, call))
        for packed in status.details if status is not None else ():
            if packed.type_url.rpartition("/")[2] in _NAMES:
                detail = errors_pb2.ErrorDetail.FromString(packed.value)
                if detail.kind in _KINDS:
                    return error_of_detail(detail)
    except (ValueError, DecodeError):
        return None
    return None


def is_lost_status(call: grpc.aio.AioRpcError) -> bool:
    """Whether a failed write replaced the status that the server had sent meanwhile.

    grpc.aio answers INTERNAL of its own when the peer closes a stream that is being written to.
    """
    return call.code() is grpc.StatusCode.INTERNAL and sent_error(call) is None
