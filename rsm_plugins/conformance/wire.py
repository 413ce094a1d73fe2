"""Cases about the contract's streams: short, slow, damaged and interrupted bodies, invalid values.

They build the contract's messages by hand, and need a plugin at an address: a store that is called
directly has no wire.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc

from kip405.contracts import Presence
from rsm_plugins.conformance.deletes import nothing_visible
from rsm_plugins.conformance.subject import (
    CALL_SECONDS,
    MIB,
    CaseSkipped,
    ConformanceFailure,
    CopyPart,
    StoredSegment,
    Subject,
    Wire,
    check,
    check_equal,
    code_of,
    pause,
)
from rsm_plugins.contract.messages import (
    CHUNK_BYTES,
    CONTRACT_VERSION,
    DELETE_MAX_SEGMENTS,
    INDEXES_MAX_BYTES,
    LOG_MAX_BYTES,
    STAT_MAX_SEGMENTS,
    expected_message,
    locator_message,
)
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import storage_pb2 as pb

if TYPE_CHECKING:
    pass

PIECE_BYTES = 64 * 1024


async def code_of_stream(call: Any) -> grpc.StatusCode:
    """The same for a call with a stream of answers; all are read."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def expect(found: grpc.StatusCode, wanted: grpc.StatusCode, what: str) -> None:
    """ConformanceFailure if the status is not the wanted one."""
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
    """The stream of a copy; with `log`, the bytes sent differ from the declared ones."""
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


SLOW_SECONDS = 0.02
_INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def plugin_describes_itself(subject: Subject) -> None:
    """The version of the contract, a name, BYTES among the capabilities, and READY."""
    wire = _wire(subject)
    info = await wire.identity.GetInfo(
        idpb.GetInfoRequest(), timeout=CALL_SECONDS, metadata=wire.metadata
    )
    check_equal(info.contract_version, CONTRACT_VERSION, "version of the contract")
    check(bool(info.name and info.instance), "a plugin without name or instance")
    check(idpb.CAPABILITY_BYTES in info.capabilities, "BYTES is not among the capabilities")
    probed = await wire.identity.Probe(
        idpb.ProbeRequest(), timeout=CALL_SECONDS, metadata=wire.metadata
    )
    check_equal(probed.state, idpb.ProbeResponse.STATE_READY, "state of the probe")


async def calls_need_a_principal(subject: Subject) -> None:
    """A call without a principal is answered UNAUTHENTICATED."""
    wire = _wire(subject)
    locator = locator_message(subject.locator(subject.partition()))
    fetch = pb.FetchLogSegmentRequest(locator=locator, start=0, end=1)
    delete = pb.DeleteLogSegmentDataRequest(locator=locator)
    found = {
        "stat": await code_of(wire.storage.Stat(pb.StatRequest(), timeout=CALL_SECONDS)),
        "fetch": await code_of_stream(wire.storage.FetchLogSegment(fetch, timeout=CALL_SECONDS)),
        "delete": await code_of(wire.storage.DeleteLogSegmentData(delete, timeout=CALL_SECONDS)),
    }
    for what, code in found.items():
        expect(code, grpc.StatusCode.UNAUTHENTICATED, f"{what} without a principal")


async def short_and_long_bodies_are_refused(subject: Subject) -> None:
    """After fewer or more bytes than declared, or bytes in the wrong order, nothing is visible."""
    wire, segment = _wire(subject), subject.segment()
    whole = copy_parts(segment)
    wrong = {
        "one byte too few": copy_parts(segment, log=segment.log[:-1]),
        "one byte too many": copy_parts(segment, log=segment.log + b"x"),
        "no log at all": whole[:2],
        "no indexes": [whole[0], *whole[2:]],
        "indexes twice": [whole[0], whole[1], *whole[1:]],
        "no header": whole[1:],
        "two headers": [whole[0], *whole],
        "an empty message": [whole[0], CopyPart(), *whole[1:]],
        "nothing": [],
    }
    for what, parts in wrong.items():
        expect(await wire.copy(parts), _INVALID, f"a copy with {what}")
        await nothing_visible(subject, segment)
    expect(await wire.copy(whole), grpc.StatusCode.OK, "the copy as declared")
    check_equal(await subject.fetch(segment.locator, 0, 2**40), segment.log, "log")


async def flipped_bits_on_the_way_are_found(subject: Subject) -> None:
    """A body with one changed bit is DATA_LOSS, and nothing is visible."""
    wire, segment = _wire(subject), subject.segment()
    damaged = bytearray(segment.log)
    damaged[len(damaged) // 2] ^= 4
    code = await wire.copy(copy_parts(segment, log=bytes(damaged)))
    expect(code, grpc.StatusCode.DATA_LOSS, "a log with a flipped bit")
    await nothing_visible(subject, segment)


async def slow_bodies_arrive(subject: Subject) -> None:
    """A writer that pauses between pieces is served, and so is a slow reader."""
    wire = _wire(subject)
    segment = subject.segment(log_size_bytes=16 * PIECE_BYTES)
    call = wire.open_copy()
    for part in copy_parts(segment):
        await call.write(part)
        await pause(SLOW_SECONDS)
    await call.done_writing()
    expect(await code_of(call), grpc.StatusCode.OK, "a slow copy")
    subject.answered[segment.locator.segment_id.id] = (await call).plugin_metadata
    await subject.manager.write_manifest(segment.locator, b"{}")
    check_equal((await subject.presence(segment)).presence, Presence.COMPLETE, "presence")
    large = subject.segment(log_size_bytes=6 * MIB)
    await subject.copy(large)
    request = pb.FetchLogSegmentRequest(
        locator=locator_message(large.locator), start=0, end=len(large.log)
    )
    received = bytearray()
    async for response in wire.storage.FetchLogSegment(
        request, timeout=CALL_SECONDS, metadata=wire.metadata
    ):
        check(len(response.chunk) <= CHUNK_BYTES, f"a chunk of {len(response.chunk)} bytes")
        received += response.chunk
        await pause(SLOW_SECONDS)
    check(received == large.log, "a slow reader got other bytes")


async def broken_off_bodies_are_invisible(subject: Subject) -> None:
    """A writer leaves after the header, after the indexes, or in the middle of the log; then the
    same copy succeeds (Pulsar: testOffloadFailInitDataBlockUpload).
    """
    wire = _wire(subject)
    segment = subject.segment(log_size_bytes=8 * PIECE_BYTES)
    parts = copy_parts(segment)
    for sent in (1, 2, 6):
        call = wire.open_copy()
        for part in parts[:sent]:
            await call.write(part)
        await pause(SLOW_SECONDS)
        call.cancel()
        await nothing_visible(subject, segment)
    expect(await wire.copy(parts), grpc.StatusCode.OK, "the copy again")
    check_equal(await subject.fetch(segment.locator, 0, 2**40), segment.log, "log")


async def readers_that_leave_cost_nothing(subject: Subject) -> None:
    """Fifty readers leave after the first message; the next reader is served."""
    wire = _wire(subject)
    segment = subject.segment(log_size_bytes=4 * MIB)
    await subject.copy(segment)
    request = pb.FetchLogSegmentRequest(
        locator=locator_message(segment.locator), start=0, end=4 * MIB
    )
    for _ in range(50):
        call = wire.storage.FetchLogSegment(request, timeout=CALL_SECONDS, metadata=wire.metadata)
        async for _response in call:
            break
        call.cancel()
    check(await subject.fetch(segment.locator, 0, 4 * MIB) == segment.log, "other bytes")


async def ranges_that_cannot_be_are_refused(subject: Subject) -> None:
    """Ranges that run backwards or are negative (Pulsar: testOffloadReadInvalidEntryIds)."""
    wire, segment = _wire(subject), subject.segment()
    await subject.copy(segment)
    for start, end in ((5, 4), (-1, 4), (-5, -1)):
        request = pb.FetchLogSegmentRequest(
            locator=locator_message(segment.locator), start=start, end=end
        )
        call = wire.storage.FetchLogSegment(request, timeout=CALL_SECONDS, metadata=wire.metadata)
        expect(await code_of_stream(call), _INVALID, f"the range {start}..{end}")


async def values_that_cannot_be_are_refused(subject: Subject) -> None:
    """Ids of another length, a negative partition, metadata of no known version, no locator."""
    wire, segment = _wire(subject), subject.segment()
    wrong: dict[str, pb.SegmentLocator | None] = {
        "a segment id of 3 bytes": other_attempt(segment, segment_id=b"abc"),
        "a topic id of 17 bytes": other_attempt(segment, topic_id=bytes(17)),
        "a negative partition": other_attempt(segment, partition=-1),
        "custom metadata of version 9": other_attempt(segment, custom_metadata=b"\x09" * 40),
        "no locator": None,
    }
    for what, locator in wrong.items():
        request = pb.ReadManifestRequest(locator=locator)
        call = wire.storage.ReadManifest(request, timeout=CALL_SECONDS, metadata=wire.metadata)
        expect(await code_of(call), _INVALID, what)


async def too_large_is_refused(subject: Subject) -> None:
    """Sizes over the limits of the contract, declared or sent; the plugin goes on."""
    wire, segment = _wire(subject), subject.segment()
    sizes = {
        "a log of 2 GiB": {"log_size_bytes": LOG_MAX_BYTES + 1},
        "a log of -1 bytes": {"log_size_bytes": -1},
        "indexes of 512 MiB + 1": {"indexes_size_bytes": INDEXES_MAX_BYTES + 1},
    }
    for what, changes in sizes.items():
        header = header_of(segment)
        for field, value in changes.items():
            setattr(header, field, value)
        expect(await wire.copy([CopyPart(header=header)]), _INVALID, what)
    many = [expected_message(subject.expected(segment))] * (STAT_MAX_SEGMENTS + 1)
    call = wire.storage.Stat(
        pb.StatRequest(segments=many), timeout=CALL_SECONDS, metadata=wire.metadata
    )
    expect(await code_of(call), _INVALID, f"stat of {len(many)} segments")
    if "batch_delete" not in subject.lacking:
        await _too_many_deletes(wire, segment)
    large = CopyPart(log_chunk=bytes(3 * MIB))
    code = await wire.copy([*copy_parts(segment)[:2], large])
    check(code is not grpc.StatusCode.OK, "a message of 3 MiB was taken")
    await nothing_visible(subject, segment)


async def _too_many_deletes(wire: Wire, segment: StoredSegment) -> None:
    many = [locator_message(segment.locator)] * (DELETE_MAX_SEGMENTS + 1)
    call = wire.storage.DeleteLogSegments(
        pb.DeleteLogSegmentsRequest(segments=many), timeout=CALL_SECONDS, metadata=wire.metadata
    )
    expect(await code_of(call), _INVALID, f"delete of {len(many)} segments")


def _wire(subject: Subject) -> Wire:
    if subject.wire is None:
        raise CaseSkipped("the store is called directly: there is no wire")
    return subject.wire


CASES = (
    plugin_describes_itself,
    calls_need_a_principal,
    short_and_long_bodies_are_refused,
    flipped_bits_on_the_way_are_found,
    slow_bodies_arrive,
    broken_off_bodies_are_invisible,
    readers_that_leave_cost_nothing,
    ranges_that_cannot_be_are_refused,
    values_that_cannot_be_are_refused,
    too_large_is_refused,
)
