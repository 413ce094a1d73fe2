"""Builds the contract's messages by hand, for streams that this product's client would never
send.
"""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import grpc

from rsm_plugins.conformance.checks import ConformanceFailure, StoredSegment
from rsm_plugins.contract.messages import locator_message
from rsm_plugins.v1 import storage_pb2 as pb

if TYPE_CHECKING:
    from rsm_plugins.v1.identity_pb2_grpc import IdentityAsyncStub
    from rsm_plugins.v1.storage_pb2_grpc import StorageAsyncStub

CALL_SECONDS = 60.0
PIECE_BYTES = 64 * 1024
CopyPart = pb.CopyLogSegmentDataRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The two services of a plugin, and the metadata with the name of a principal."""

    identity: "IdentityAsyncStub"
    storage: "StorageAsyncStub"
    principal: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("rlm-principal", self.principal),)

    def open_copy(self) -> Any:
        """A CopyLogSegmentData call to write to; a stream-unary call of grpc.aio."""
        return self.storage.CopyLogSegmentData(timeout=CALL_SECONDS, metadata=self.metadata)

    async def copy(self, parts: Iterable[CopyPart]) -> grpc.StatusCode:
        """Send a whole stream; the status of the answer."""
        call = self.open_copy()
        try:
            for part in parts:
                await call.write(part)
            await call.done_writing()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, RuntimeError, ValueError):
            pass  # answered before everything was sent: the status below has the reason
        return await code_of(call)


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """The status of a call that answers one message."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


async def code_of_stream(call: Any) -> grpc.StatusCode:
    """The same for a call that answers many; all are read."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def expect(found: grpc.StatusCode, wanted: grpc.StatusCode, what: str) -> None:
    """ConformanceFailure where a status is another."""
    if found is not wanted:
        raise ConformanceFailure(f"{what}: {found.name} instead of {wanted.name}")


def header_of(segment: StoredSegment) -> pb.CopyHeader:
    return pb.CopyHeader(
        locator=locator_message(segment.locator),
        log_size_bytes=len(segment.log),
        log_crc32c=segment.data.log_crc32c,
        indexes_size_bytes=len(segment.data.indexes),
        indexes_crc32c=segment.data.indexes_crc32c,
    )


def copy_parts(segment: StoredSegment, *, log: bytes | None = None) -> list[CopyPart]:
    """A copy's stream; with `log` the bytes sent are others than those declared."""
    sent = segment.log if log is None else log
    pieces = [sent[at : at + PIECE_BYTES] for at in range(0, len(sent), PIECE_BYTES)]
    return [
        CopyPart(header=header_of(segment)),
        CopyPart(indexes_chunk=segment.data.indexes),
        *(CopyPart(log_chunk=piece) for piece in pieces),
    ]


def other_attempt(segment: StoredSegment, **changes: object) -> pb.SegmentLocator:
    """The locator's message with fields changed, for values that a locator cannot have."""
    message = locator_message(replace(segment.locator))
    for field, value in changes.items():
        setattr(message, field, value)
    return message
