"""The state of one client connection: cuts the client's byte stream into requests. Pure.

Most bytes pass unparsed and must not be assembled. A few requests are intercepted whole, because an
answer to them may be altered, or says who the client is. `rlm.proxy.responses` cuts the broker's
stream. This module must not know sockets, tasks or the remote tier.
"""

import enum
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.api_versions import is_offered
from kafka_protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    WRITE_TXN_MARKERS,
)
from kafka_protocol.fetch import FetchedPartition
from kafka_protocol.frames import FrameAssembler, PartialRead, parse_request_header
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.produce import read_acks, usual_acks
from kafka_protocol.produce_request import MAX_HEAD_BYTES, ProduceRequestScanner
from rlm.proxy.introductions import MOST_SHOWN_BYTES, Introduced, introduces, introduction
from rlm.proxy.own_topics import OwnTopics, unknown_ids

LENGTH_BYTES = 4
_TLS_HELLO = b"\x16\x03"  # how a TLS handshake begins, in all versions
BAD_PRODUCE = "bad_produce"
"""The cause where a Produce is none. A short one that comes whole, and has no name of our topics in
it, is not looked at: that is the broker's to refuse.
"""
_REQUEST_HEAD_BYTES = 12  # length, API key, version, correlation id
_SEARCHED_BYTES = 4_096  # in a longer Produce the heads of partitions are found faster than bytes
_ANSWERED_TO_ANYBODY = frozenset({API_VERSIONS.key})
_TAKEN_KEYS = frozenset(
    {
        FETCH.key,
        LIST_OFFSETS.key,
        OFFSET_FOR_LEADER_EPOCH.key,
        DELETE_RECORDS.key,
        CREATE_TOPICS.key,
        DELETE_TOPICS.key,
        ALTER_CONFIGS.key,
        INCREMENTAL_ALTER_CONFIGS.key,
        CREATE_PARTITIONS.key,
        ADD_PARTITIONS_TO_TXN.key,
        WRITE_TXN_MARKERS.key,
        SASL_HANDSHAKE.key,
        SASL_AUTHENTICATE.key,
    }
)


class SessionError(Exception):
    """The connection cannot continue; `cause` is the name for logs and metrics."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class FetchEntries(Protocol):
    """Sees the partitions of a Fetch answer that is passed on while it flows."""

    def entry(self, head: memoryview, topic: str | bytes, answered: FetchedPartition) -> bool:
        """Whether the partition may be passed on; its head may be changed in place for that.

        False: nothing more is passed on, and it is asked again with the same partition, until the
        answer is True. Positions are in the head. Raises `WireError`.
        """
        ...

    def tags(self, tags: memoryview) -> None:
        """The last tagged fields of the answer, which may be changed in place. Raises
        `WireError`.
        """
        ...


class Intercept(enum.Enum):
    """How the answer to a request is handled."""

    NOTHING = "nothing"
    PRODUCE = "produce"
    API_VERSIONS = "api_versions"
    METADATA = "metadata"
    DESCRIBE_CLUSTER = "describe_cluster"
    FIND_COORDINATOR = "find_coordinator"
    ASKED = "asked"


_OF_ADDRESSES = {
    METADATA.key: Intercept.METADATA,
    DESCRIBE_CLUSTER.key: Intercept.DESCRIBE_CLUSTER,
    FIND_COORDINATOR.key: Intercept.FIND_COORDINATOR,
}
_OF_VERSIONS = {API_VERSIONS.key: Intercept.API_VERSIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An answer that the broker still owes. An ASKED answer beyond `stream_above` bytes is
    streamed; if it is a Fetch answer with `entries`, these see each partition on the way.

    `admits`: where a broker requires authentication, only an authenticated client gets this answer.
    """

    intercept: Intercept
    api_version: int
    correlation_id: int
    stream_above: int | None = None
    entries: FetchEntries | None = None
    admits: bool = True


def expected_by_us(
    api_version: int,
    correlation_id: int,
    stream_above: int | None,
    entries: FetchEntries | None = None,
    *,
    admits: bool = True,
) -> Expected:
    """The answer to a request of a handler."""
    return Expected(
        intercept=Intercept.ASKED,
        api_version=api_version,
        correlation_id=correlation_id,
        stream_above=stream_above,
        entries=entries,
        admits=admits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A whole request (without its length) that a handler answers before the next one passes."""

    api_key: int
    api_version: int
    correlation_id: int
    frame: bytearray


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What a feed of client bytes gave: bytes to pass on, answers to expect, a request; and of how
    many partitions a Produce was refused. `is_stopped`: see `RequestCutter.stop`.
    """

    passed: Buffer
    expected: tuple[Expected, ...]
    taken: Taken | None
    refused_partitions: int = 0
    is_stopped: bool = False


def frame_size(head: memoryview, smallest: int, max_frame_bytes: int | None) -> int:
    """Declared size of a frame; SessionError says which other protocol its first bytes are of."""
    size_bytes = int.from_bytes(head[:LENGTH_BYTES], "big", signed=True)
    if size_bytes >= smallest and (max_frame_bytes is None or size_bytes <= max_frame_bytes):
        return size_bytes
    if bytes(head[:2]) == _TLS_HELLO:
        raise SessionError(
            "tls_on_plain",
            "these bytes are a TLS ClientHello, and the proxy speaks no TLS: give "
            "proxy.tls.cert.file, or set the client to PLAINTEXT or SASL_PLAINTEXT",
        )
    try:
        FrameAssembler(max_frame_bytes or 0).feed(head[:LENGTH_BYTES])
    except WireError as error:
        raise SessionError("bad_frame", str(error)) from error
    raise SessionError("bad_frame", f"frame of {size_bytes} bytes")


_OWN_TOPICS_BY_NAME = OwnTopics(ids=unknown_ids)


class RequestCutter:
    """Cuts the client's byte stream; stops after an intercepted request until `resume`.

    The buffer of an intercepted frame grows with the bytes received, whatever size the frame
    declares (H36). Such a frame may have at most `read_request_bytes`, because what reads it takes
    time and memory by its size, and before `admit` at most `first_frame_bytes`. `rewrites`: answers
    that name nodes are changed. A Produce for `own_topics` is spoiled on its way.
    `introduced` gets what requests that pass say of their client.
    """

    def __init__(
        self,
        max_frame_bytes: int,
        first_frame_bytes: int | None = None,
        *,
        read_request_bytes: int | None = None,
        rewrites: bool = False,
        own_topics: OwnTopics = _OWN_TOPICS_BY_NAME,
        introduced: Introduced | None = None,
    ) -> None:
        self._own_topics = own_topics
        self._introduced, self._is_admitted = introduced, False
        self._intercepts = _OF_VERSIONS | _OF_ADDRESSES if rewrites else _OF_VERSIONS
        self._max_frame_bytes = max_frame_bytes
        self._read_request_bytes = min(read_request_bytes or max_frame_bytes, max_frame_bytes)
        self._first_frame_bytes = first_frame_bytes
        # The start of a frame that is not parsed yet, or bytes behind `taken`.
        self._held = bytearray()
        self._passing_bytes = 0
        self._scanner: ProduceRequestScanner | None = None
        self._partial = PartialRead()
        self._frame: bytearray | None = None
        self._missing_bytes = 0
        self._begun: tuple[int, int, int] = (0, 0, 0)
        self._blocked = False
        self._is_to_stop = False
        self.has_request = False
        """A request that passes has begun, or one that is taken has come whole."""

    @property
    def queued_bytes(self) -> int:
        """Bytes kept here that are not of the frame being taken, for backpressure."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """All bytes kept here."""
        return len(self._held) + len(self._frame or b"")

    @property
    def passing_bytes(self) -> int:
        """Bytes that come next and are passed on unread."""
        return self._passing_bytes

    @property
    def unpassed_bytes(self) -> int:
        """Bytes that must still come of a request whose beginning was passed on."""
        scanner = self._scanner
        left_bytes = 0 if scanner is None else scanner.left_bytes - len(self._held)
        return self._passing_bytes + left_bytes

    def skip(self, size_bytes: int) -> None:
        """Count bytes, at most `passing_bytes`, that took another way."""
        self._passing_bytes -= size_bytes

    @property
    def is_within_frame(self) -> bool:
        """Whether more bytes of a request that has begun must come."""
        waits = bool(self._held) and not self._blocked
        is_passing = self._passing_bytes > 0 or self._scanner is not None
        return waits or is_passing or self._frame is not None

    def admit(self) -> None:
        """The broker has answered a request that needs authentication: frames may be large now."""
        if self._is_admitted:
            return
        self._is_admitted, self._first_frame_bytes = True, None
        if self._introduced is not None:
            self._introduced.admitted()

    def stop(self, *, wanted: bool = True) -> None:
        """Stop before the next request begins, as after an intercepted one. The Cut says so.
        Without `wanted`, what was asked for before is taken back.
        """
        self._is_to_stop = wanted

    def feed(self, data: Buffer) -> Cut:
        """Take bytes of any cut. `passed` views the input: write it before the input is reused. The
        input must be writable where a Produce is refused.
        """
        if self._blocked:
            self._held += data
            return Cut(passed=b"", expected=(), taken=None)
        if self._held:
            self._held += data
            return self._cut(self._taken_back())
        return self._cut(memoryview(data))

    def resume(self) -> Cut:
        """Continue after an intercepted request was answered."""
        self._blocked = False
        return self._cut(self._taken_back())

    def _taken_back(self) -> memoryview:
        held, self._held = self._held, bytearray()
        return memoryview(held)

    def _cut(self, view: memoryview) -> Cut:
        expected: list[Expected] = []
        position = refused_partitions = 0
        is_stopped = False
        while position < len(view) and self._frame is None:
            if self._passing_bytes:
                size_bytes = min(self._passing_bytes, len(view) - position)
                self._passing_bytes -= size_bytes
                position += size_bytes
            elif self._scanner is not None:
                size_bytes, refused = self._scan(self._scanner, view[position:])
                refused_partitions += refused
                position += size_bytes
                if size_bytes == 0:
                    break
            elif self._is_to_stop:
                is_stopped = True
                break
            elif not self._begin(view[position:], expected):
                break
        passed, rest = view[:position], view[position:]
        taken = None
        if is_stopped:
            self._is_to_stop, self._blocked = False, True
        if self._frame is None:
            self._held += rest
        else:
            taken = self._fill(rest)
        return Cut(
            passed=passed,
            expected=tuple(expected),
            taken=taken,
            refused_partitions=refused_partitions,
            is_stopped=is_stopped,
        )

    def _scan(self, scanner: ProduceRequestScanner, view: memoryview) -> tuple[int, int]:
        """How many bytes of a Produce are passed on, and in how many partitions it is refused."""
        before = scanner.refused_partitions
        try:
            size_bytes, self._passing_bytes = scanner.scan(view)
        except WireError as error:
            raise SessionError(BAD_PRODUCE, str(error)) from error
        if scanner.left_bytes == 0:
            self._scanner = None
        return size_bytes, scanner.refused_partitions - before

    def _begin(self, head: memoryview, expected: list[Expected]) -> bool:
        """Parse the start of a frame; False when more bytes are needed for that."""
        if len(head) < LENGTH_BYTES:
            return False
        size_bytes = frame_size(head, _REQUEST_HEAD_BYTES - LENGTH_BYTES, self._max_frame_bytes)
        if len(head) < _REQUEST_HEAD_BYTES:
            return False
        api_key = int.from_bytes(head[4:6], "big", signed=True)
        api_version = int.from_bytes(head[6:8], "big", signed=True)
        correlation_id = int.from_bytes(head[8:12], "big", signed=True)
        is_newer = api_key == API_VERSIONS.key and not API_VERSIONS.versions.has(api_version)
        if not is_newer:
            _check_offered(api_key, api_version, self._own_topics)
        if api_key in _TAKEN_KEYS or is_newer:
            self._check_taken(api_key, size_bytes)
            self._begun = (api_key, api_version, correlation_id)
            self._frame, self._missing_bytes = bytearray(), LENGTH_BYTES + size_bytes
            return True
        if introduces(api_key) and not self._introduce(head[LENGTH_BYTES:], size_bytes):
            return False
        intercept = self._intercepts.get(api_key, Intercept.NOTHING)
        has_answer = True
        if api_key == PRODUCE.key:
            acks = self._acks(head[LENGTH_BYTES:][:size_bytes], size_bytes, api_version)
            if acks is None:
                return False
            has_answer = acks != 0
            intercept = Intercept.PRODUCE
        if has_answer:
            expected.append(
                Expected(
                    intercept=intercept,
                    api_version=api_version,
                    correlation_id=correlation_id,
                    admits=api_key not in _ANSWERED_TO_ANYBODY,
                )
            )
        self._passing_bytes = LENGTH_BYTES + size_bytes
        if api_key == PRODUCE.key and self._may_be_refused(head[LENGTH_BYTES:], size_bytes):
            self._passing_bytes = LENGTH_BYTES
            self._scanner = ProduceRequestScanner(
                size_bytes, api_version, self._own_topics.has_named
            )
        self.has_request = True
        return True

    def _acks(self, frame: memoryview, size_bytes: int, api_version: int) -> int | None:
        """Acks of the Produce request that begins here, None when more bytes are needed."""
        usual = usual_acks(frame, api_version)
        if usual is None and not self._partial.is_due(len(frame), size_bytes):
            return None
        self._partial.succeeded()
        if usual is not None:
            return usual
        try:
            return read_acks(frame, parse_request_header(frame))
        except WireError as error:
            if len(frame) == size_bytes or len(frame) > MAX_HEAD_BYTES:
                raise SessionError("bad_frame", str(error)) from error
            self._partial.ended_early(len(frame))
            return None

    def _may_be_refused(self, frame: memoryview, size_bytes: int) -> bool:
        """False for a short Produce that names none of our topics: most need no other look."""
        is_whole = size_bytes <= min(len(frame), _SEARCHED_BYTES)
        return not is_whole or self._own_topics.may_be_in(bytes(frame[:size_bytes]))

    def _introduce(self, frame: memoryview, size_bytes: int) -> bool:
        """Read what a request says that passes; False when more bytes are needed for that."""
        wanted_bytes = min(size_bytes, MOST_SHOWN_BYTES)
        if self._introduced is None or len(frame) < wanted_bytes:
            return self._introduced is None
        found = introduction(frame[:wanted_bytes])
        if found is not None:
            self._introduced.introduced(found)
        return True

    def _check_taken(self, api_key: int, size_bytes: int) -> None:
        first_bytes, what = self._first_frame_bytes, f"request of API {api_key}: {size_bytes} bytes"
        if first_bytes is not None and size_bytes > first_bytes:
            raise SessionError(
                "frame_too_large",
                f"{what} before the broker has answered this connection, at most {first_bytes} "
                "(proxy.unauthenticated.frame.max.bytes)",
            )
        if size_bytes > self._read_request_bytes:
            raise SessionError(
                "frame_too_large",
                f"{what}, at most {self._read_request_bytes} (proxy.read.request.max.bytes)",
            )

    def _fill(self, view: memoryview) -> Taken | None:
        frame = self._frame
        if frame is None:
            return None
        taken = view[: self._missing_bytes]
        frame += taken
        self._missing_bytes -= len(taken)
        if self._missing_bytes:
            return None
        self._held += view[len(taken) :]
        self._frame, self._blocked, self.has_request = None, True, True
        del frame[:LENGTH_BYTES]
        api_key, api_version, correlation_id = self._begun
        return Taken(
            api_key=api_key, api_version=api_version, correlation_id=correlation_id, frame=frame
        )


def _check_offered(api_key: int, api_version: int, own_topics: OwnTopics) -> None:
    """Clients that ignore ApiVersions lose the connection, as at a broker."""
    highest = own_topics.highest_taken(api_key)
    is_too_new = highest is not None and api_version > highest
    if is_too_new or not is_offered(api_key, api_version):
        raise SessionError("version_not_offered", f"API {api_key} v{api_version} is not offered")
    if api_key == SASL_HANDSHAKE.key and api_version == 0:
        raise SessionError("sasl_handshake_v0", "SASL tokens outside of Kafka frames (v0)")
