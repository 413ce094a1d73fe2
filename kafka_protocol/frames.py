"""Cuts a byte stream into frames, and reads and writes message headers.

These are the parts of the protocol that every message has. `feed` takes bytes and yields complete
frames (without their 4-byte length). This module must not know sockets or asyncio.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis import API_VERSIONS, APIS
from kafka_protocol.primitives import MAX_INT32, Buffer, Reader, WireError, Writer
from kafka_protocol.schema import Api, Value, decode, encode

LENGTH_SIZE_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 104_857_600  # Kafka's socket.request.max.bytes
_CONTROLLED_SHUTDOWN_KEY = 7
_LENGTH = struct.Struct(">i")
_NOT_KAFKA: dict[bytes, str] = {
    b"\x16\x03": "a TLS ClientHello on a plaintext listener",
    b"\x15\x03": "a TLS alert on a plaintext connection",
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"CONN": "an HTTP request",
    b"PRI ": "an HTTP/2 preface",
    b"HTTP": "an HTTP response",
    b"SSH-": "an SSH banner",
}


SHORT_PART_BYTES = 256


class PartialRead:
    """When bytes that ended too early are read again: with an eighth more of them, or whole. A part
    that comes in single bytes would otherwise cost the square of its length. Up to
    `SHORT_PART_BYTES` it is read again each time.
    """

    __slots__ = ("_next_bytes",)

    def __init__(self) -> None:
        self._next_bytes = 0

    def is_due(self, size_bytes: int, whole_bytes: int) -> bool:
        """Whether so many bytes, of at most `whole_bytes` that will come, are to be read."""
        return size_bytes >= min(self._next_bytes, whole_bytes)

    def ended_early(self, size_bytes: int) -> None:
        """So many bytes were too few."""
        if size_bytes >= SHORT_PART_BYTES:
            self._next_bytes = size_bytes + size_bytes // 8

    def succeeded(self) -> None:
        """Other bytes come next."""
        self._next_bytes = 0


class FrameAssembler:
    """Cuts a byte stream into frames, copying each byte once; memory follows the bytes received."""

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._length = bytearray()
        self._frame = bytearray()
        self._missing_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Size of the frame under way as far as declared; 0 between frames."""
        return len(self._frame) + self._missing_bytes

    def feed(self, data: Buffer) -> list[bytearray]:
        """Take bytes of any cut; answer the frames that are complete now, in order.

        The input may be reused after the call. Raises `WireError` for a length that is negative,
        above `max_frame_bytes`, or is really the start of another protocol; the stream is then
        lost, with it frames that ended in the same call.
        """
        frames: list[bytearray] = []
        view = memoryview(data)
        position = 0
        while position < len(view):
            if self._missing_bytes == 0:
                taken = view[position : position + LENGTH_SIZE_BYTES - len(self._length)]
                self._length += taken
                position += len(taken)
                if len(self._length) < LENGTH_SIZE_BYTES:
                    break
                self._missing_bytes = self._declared_size()
                self._length.clear()
            taken = view[position : position + self._missing_bytes]
            self._frame += taken
            position += len(taken)
            self._missing_bytes -= len(taken)
            if self._missing_bytes == 0:
                frames.append(self._frame)
                self._frame = bytearray()
        return frames

    def _declared_size(self) -> int:
        for start, protocol in _NOT_KAFKA.items():
            if self._length.startswith(start):
                raise WireError(f"not Kafka's protocol: the first bytes are those of {protocol}")
        (size_bytes,) = _LENGTH.unpack(self._length)
        if not 0 <= size_bytes <= self._max_frame_bytes:
            raise WireError(
                f"frame of {size_bytes} bytes, at most {self._max_frame_bytes} are allowed"
            )
        return int(size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """Header of a request; `body_offset` is the position of the body in the frame.

    For an API without a table the header's tagged fields, if any, are not skipped: then
    `body_offset` is where the client id ends.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Read a request header v0, v1 or v2 (client_id is never compact). Raises `WireError`."""
    reader = Reader(frame, what="request header")
    api_key, api_version = reader.int16(), reader.int16()
    reader.what = f"request header of API {api_key} v{api_version}"
    correlation_id = reader.int32()
    client_id: str | None = None
    if (api_key, api_version) != (_CONTROLLED_SHUTDOWN_KEY, 0):
        size_bytes = reader.int16()
        if size_bytes < -1:
            raise reader.fail(f"client id of {size_bytes} bytes")
        if size_bytes >= 0:  # shown, never sent on: an invalid byte must not cost the connection
            client_id = str(reader.view(size_bytes), "utf-8", "replace")
    api = APIS.get(api_key)
    if api is not None and api.is_flexible(api_version):
        reader.skip_tags()
    return RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
        body_offset=reader.position,
    )


def parse_response_header(frame: Buffer, api: Api, version: int) -> tuple[int, int]:
    """Read a response header; answer (correlation id, position of the body).

    ApiVersions answers with header v0 always, so that any client can read it (KIP-511).
    """
    reader = Reader(frame, what=f"{api.name} v{version} response header")
    correlation_id = reader.int32()
    if has_flexible_response_header(api, version):
        reader.skip_tags()
    return correlation_id, reader.position


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Value]:
    """Read a whole response frame; answer (correlation id, body). Raises `WireError`, also where
    bytes are left.
    """
    correlation_id, position = parse_response_header(frame, api, version)
    value, end = decode(api.response, version, frame, position)
    if end != len(frame):
        raise WireError(f"{api.name} v{version} response: {len(frame) - end} bytes after its end")
    return correlation_id, value


def has_flexible_response_header(api: Api, version: int) -> bool:
    """Whether the response header is v1 (with tagged fields)."""
    return api is not API_VERSIONS and api.is_flexible(version)


def encode_request_header(
    api: Api, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """A request header v1, or v2 for a flexible version."""
    writer = Writer(what=f"{api.name} v{version} request header")
    writer.int16(api.key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    if api.is_flexible(version):
        writer.uvarint(0)
    return bytes(writer.buffer)


def encode_request(
    api: Api,
    version: int,
    correlation_id: int,
    client_id: str | None,
    value: Mapping[str, Any],
) -> bytes:
    """A whole request frame, its 4-byte length included."""
    header = encode_request_header(api, version, correlation_id, client_id)
    return with_length(header + encode(api.request, version, value))


def encode_response(api: Api, version: int, correlation_id: int, value: Mapping[str, Any]) -> bytes:
    """A whole response frame, its 4-byte length included."""
    writer = Writer(what=f"{api.name} v{version} response header")
    writer.int32(correlation_id)
    if has_flexible_response_header(api, version):
        writer.uvarint(0)
    writer.raw(encode(api.response, version, value))
    return with_length(writer.buffer)


def frame_length(size_bytes: int) -> bytes:
    """The 4 bytes that go before a frame of this size."""
    if not 0 <= size_bytes <= MAX_INT32:
        raise WireError(f"a frame of {size_bytes} bytes cannot be written")
    return _LENGTH.pack(size_bytes)


def with_length(frame: Buffer) -> bytes:
    """A copy of the frame with its 4-byte length before it."""
    return frame_length(len(frame)) + frame
