"""Translates a failed call of the fetch API: rlm.v1.ErrorDetail, or the gRPC status without one.

Must not know which call failed.
"""

from dataclasses import dataclass
from typing import cast

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from kip405.errors import ErrorKind, is_tls_refusal, kind_of_status
from rlm.v1 import errors_pb2

_KINDS = {errors_pb2.ErrorKind.Value(f"ERROR_KIND_{kind.name}"): kind for kind in ErrorKind}
_TEXTS = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "does not know this call (an older version?)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call. `leader_address`: the service to call instead, empty if none was named.

    `log_start_offset`, `high_watermark`: the bound of the log that the requested offset violates,
    None where the service names none. `is_answered`: a service has refused the call; otherwise
    gRPC has failed it.
    """

    kind: ErrorKind
    what: str
    leader_address: str = ""
    log_start_offset: int | None = None
    high_watermark: int | None = None
    is_answered: bool = False

    @property
    def lacks_bounds(self) -> bool:
        """Whether the offset may be outside the log: a service of an older version refuses it as
        INVALID without the bound.
        """
        return (
            self.is_answered
            and self.kind is ErrorKind.INVALID
            and self.log_start_offset is None
            and self.high_watermark is None
        )


def failure_of(error: grpc.RpcError, address: str) -> Failure:
    """What the error says; without a detail the status code decides."""
    call = cast(grpc.Call, error)
    detail = _detail_of(call)
    if detail is not None:
        return Failure(
            kind=_KINDS[detail.kind],
            what=detail.what,
            leader_address=detail.leader_address,
            log_start_offset=(
                detail.log_start_offset if detail.HasField("log_start_offset") else None
            ),
            high_watermark=detail.high_watermark if detail.HasField("high_watermark") else None,
            is_answered=True,
        )
    code = call.code()
    text = _TEXTS.get(code) or call.details() or "failed"
    if text.endswith("Socket closed"):
        text += ": it may want TLS (rlm.tls.ca.file), or a certificate it trusts"
    kind = kind_of_status(code.name)
    if kind is ErrorKind.UNAVAILABLE and is_tls_refusal(text):
        kind = ErrorKind.INVALID
    return Failure(kind=kind, what=f"service at {address}: {text} [{code.name}]")


def _detail_of(call: grpc.Call) -> errors_pb2.ErrorDetail | None:
    """None where there is no detail, or one of a kind that this version does not know."""
    detail = errors_pb2.ErrorDetail()
    try:
        status = rpc_status.from_call(call)
        for packed in status.details if status is not None else ():
            if packed.Unpack(detail) and detail.kind in _KINDS:
                return detail
    except (ValueError, DecodeError):
        return None
    return None
