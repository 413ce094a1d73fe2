"""The few kinds of error, chosen by what the caller must do.

kind         retriable  what the caller does
-----------  ---------  ---------------------------------------------------------------
NotFound     no         stop asking; a FINISHED segment not found is an alarm (H11, H25)
Unavailable  yes        wait and try again; nothing is known to have happened
Busy         yes        come back later; a bounded queue is full
Invalid      no         correct the request or the setting named in the message
Corrupt      no         do not use the bytes; the message names the object
Fenced       no         drop the plan: another broker leads, or the evidence changed
Internal     no         a bug of this product; report it

Foreign errors are translated once, where they enter, with `raise ... from`. KIP-405's
RemoteResourceNotFoundException is NotFound, RetriableRemoteStorageException is Unavailable,
RemoteStorageException is any of the others. For a gRPC connection that could not be opened, the
cause in TLS is taken from gRPC's own text. This module must not know the caller or the callee.
"""

import enum
from typing import ClassVar


class ErrorKind(enum.Enum):
    """Kind with the name of the gRPC status code that carries it (see `kind_of_status`)."""

    NOT_FOUND = "NOT_FOUND"
    UNAVAILABLE = "UNAVAILABLE"
    BUSY = "RESOURCE_EXHAUSTED"
    INVALID = "INVALID_ARGUMENT"
    CORRUPT = "DATA_LOSS"
    FENCED = "FAILED_PRECONDITION"
    INTERNAL = "INTERNAL"

    @property
    def retriable(self) -> bool:
        return self in (ErrorKind.UNAVAILABLE, ErrorKind.BUSY)


class RemoteStorageError(Exception):
    """Base class of the errors of this product; raise one of its subclasses."""

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL

    @property
    def retriable(self) -> bool:
        return self.kind.retriable


class NotFound(RemoteStorageError):
    kind = ErrorKind.NOT_FOUND


class Unavailable(RemoteStorageError):
    kind = ErrorKind.UNAVAILABLE


class Busy(RemoteStorageError):
    kind = ErrorKind.BUSY


class Invalid(RemoteStorageError):
    kind = ErrorKind.INVALID


class Corrupt(RemoteStorageError):
    kind = ErrorKind.CORRUPT


class Fenced(RemoteStorageError):
    kind = ErrorKind.FENCED


class Internal(RemoteStorageError):
    kind = ErrorKind.INTERNAL


class OffsetOutOfRange(Invalid):
    """The offset is not in the log: it is below `log_start_offset`, or beyond `high_watermark`."""

    def __init__(
        self,
        message: str,
        *,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
    ) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


class Elsewhere(Fenced):
    """Another service answers for the partition: ask `leader_address` (host:port, may be empty)."""

    def __init__(self, message: str, leader_address: str = "") -> None:
        super().__init__(message)
        self.leader_address = leader_address


_BY_KIND: dict[ErrorKind, type[RemoteStorageError]] = {
    ErrorKind.NOT_FOUND: NotFound,
    ErrorKind.UNAVAILABLE: Unavailable,
    ErrorKind.BUSY: Busy,
    ErrorKind.INVALID: Invalid,
    ErrorKind.CORRUPT: Corrupt,
    ErrorKind.FENCED: Fenced,
    ErrorKind.INTERNAL: Internal,
}

# Codes that gRPC itself or a foreign server may answer, and what the caller must do about them.
_STATUS_ALIASES: dict[str, ErrorKind] = {
    "DEADLINE_EXCEEDED": ErrorKind.UNAVAILABLE,
    "CANCELLED": ErrorKind.UNAVAILABLE,
    "ABORTED": ErrorKind.FENCED,
    "OUT_OF_RANGE": ErrorKind.INVALID,
    "ALREADY_EXISTS": ErrorKind.INVALID,
    "UNIMPLEMENTED": ErrorKind.INVALID,
    "PERMISSION_DENIED": ErrorKind.INVALID,
    "UNAUTHENTICATED": ErrorKind.INVALID,
}


def error_of_kind(kind: ErrorKind, message: str) -> RemoteStorageError:
    """The exception of a kind, for edges that receive kinds as data."""
    return _BY_KIND[kind](message)


def kind_of_status(status_name: str) -> ErrorKind:
    """gRPC status code name -> kind; an unknown code is INTERNAL."""
    for kind in ErrorKind:
        if kind.value == status_name:
            return kind
    return _STATUS_ALIASES.get(status_name, ErrorKind.INTERNAL)


_REFUSALS = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not valid yet"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is of no authority that is trusted here"),
    ("Hostname Verification Check failed", "its certificate does not have the name dialled"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("CERTIFICATE_REQUIRED", "it wants a certificate that it trusts"),
)
_CLOSED_AT_ONCE = (
    "it closed the connection at once: it may want TLS, or a certificate it trusts, or be a port "
    "of another protocol"
)
_REASONS = (
    *_REFUSALS,
    ("http1.x server", "this port speaks HTTP, not gRPC: give the address of grpc.listen"),
    ("Socket closed", _CLOSED_AT_ONCE),
    ("onnection reset", _CLOSED_AT_ONCE),
)


def is_tls_refusal(details: str) -> bool:
    """Whether certificates, or TLS on one side only, forbid the connection: no wait mends that."""
    return any(text in details for text, _ in _REFUSALS)


def tls_reason(details: str | None) -> str | None:
    """For people, why a connection was never made, if TLS or another protocol is or may be why."""
    if not details or "failed to connect" not in details:
        return None
    return next((reason for text, reason in _REASONS if text in details), None)
