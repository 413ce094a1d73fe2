"""Translates a failed call to the fetch API: rlm.v1.ErrorDetail out of a gRPC error.

The detail travels in google.rpc.Status (`grpc-status-details-bin`), whose generated code executors
do not have; its three fields are described here. Must not know which call failed.
"""

import re
from dataclasses import dataclass
from typing import Any, cast

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kip405.errors import ErrorKind, is_tls_refusal, kind_of_status
from rlm.v1 import errors_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_LOG_START = re.compile(r"log_start_offset=(-?\d+)")
_LOG_END = re.compile(r"high_watermark=(-?\d+)")
_KINDS: dict[int, ErrorKind] = {
    errors_pb2.ERROR_KIND_NOT_FOUND: ErrorKind.NOT_FOUND,
    errors_pb2.ERROR_KIND_UNAVAILABLE: ErrorKind.UNAVAILABLE,
    errors_pb2.ERROR_KIND_BUSY: ErrorKind.BUSY,
    errors_pb2.ERROR_KIND_INVALID: ErrorKind.INVALID,
    errors_pb2.ERROR_KIND_CORRUPT: ErrorKind.CORRUPT,
    errors_pb2.ERROR_KIND_FENCED: ErrorKind.FENCED,
    errors_pb2.ERROR_KIND_INTERNAL: ErrorKind.INTERNAL,
}
_TEXTS = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "does not know this call (an older version?)",
}


def _status_class() -> type[Any]:
    """google.rpc.Status: code, message, details; in a pool of its own."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="rlm_spark/status.proto",
        package="rlm_spark",
        syntax="proto3",
        dependency=["google/protobuf/any.proto"],
    )
    message = file.message_type.add(name="Status")
    message.field.add(name="code", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    message.field.add(name="message", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="details",
        number=3,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=".google.protobuf.Any",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return cast(
        type[Any],
        message_factory.GetMessageClass(pool.FindMessageTypeByName("rlm_spark.Status")),
    )


_Status = _status_class()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call. `leader_address`: the service to call instead, empty if none was named."""

    kind: ErrorKind
    what: str
    leader_address: str = ""

    @property
    def log_start_offset(self) -> int | None:
        """Where the log begins, of an INVALID for an offset below it."""
        found = _LOG_START.search(self.what) if self.kind is ErrorKind.INVALID else None
        return int(found[1]) if found else None

    @property
    def high_watermark(self) -> int | None:
        """Where the log ends, of an INVALID for an offset beyond it."""
        found = _LOG_END.search(self.what) if self.kind is ErrorKind.INVALID else None
        return int(found[1]) if found else None


def failure_of(error: grpc.RpcError, address: str) -> Failure:
    """What the error says; without a detail the status code decides."""
    call = cast(grpc.Call, error)
    for key, value in call.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            detail = _detail(value.encode() if isinstance(value, str) else value)
            if detail is not None:
                return Failure(
                    kind=_KINDS[detail.kind],
                    what=detail.what,
                    leader_address=detail.leader_address,
                )
    code = call.code()
    text = _TEXTS.get(code) or call.details() or "failed"
    if text.endswith("Socket closed"):
        text += ": it may want TLS (rlm.tls.ca.file), or a certificate it trusts"
    kind = kind_of_status(code.name)
    if kind is ErrorKind.UNAVAILABLE and is_tls_refusal(text):
        kind = ErrorKind.INVALID
    return Failure(kind=kind, what=f"service at {address}: {text} [{code.name}]")


def _detail(packed: bytes) -> errors_pb2.ErrorDetail | None:
    try:
        status = _Status.FromString(packed)
        for row in status.details:
            if row.type_url.rpartition("/")[2] == errors_pb2.ErrorDetail.DESCRIPTOR.full_name:
                detail = errors_pb2.ErrorDetail.FromString(row.value)
                if detail.kind in _KINDS:
                    return detail
    except DecodeError:
        return None
    return None
