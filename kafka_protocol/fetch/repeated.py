"""Scans the Fetch requests of one connection, most of which repeat the one before.

A consumer asks for the same partitions again and again, at other offsets. Such a request is known
by its bytes: all of them are the same, but for those fields. Then nothing but the partitions is
read again. This module must not know what is done with a request.
"""

from kafka_protocol.fetch.request import (
    LAYOUTS,
    FetchRequest,
    FetchTopic,
    scan_fetch_request,
    scan_partitions,
)
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import Buffer

_MOST_REMEMBERED_BYTES = 2_048  # of one frame, for as long as its connection lives
_CORRELATION_ID = slice(4, 8)
_Varying = tuple[slice, bytes]


class FetchRequests:
    """Remembers the last request of a connection."""

    def __init__(self) -> None:
        self._client_id: str | None = None
        self._request: FetchRequest | None = None
        self._masked = bytearray()
        self._varying: tuple[_Varying, ...] = ()

    @property
    def remembered_bytes(self) -> int:
        """Size of the frame that is remembered."""
        return len(self._masked)

    def scan(self, frame: Buffer) -> tuple[str | None, FetchRequest]:
        """The client id and the request of a frame without its length. Raises `WireError`."""
        known = self._request
        if known is not None and len(frame) == len(self._masked):
            masked = bytearray(frame)
            for where, zeros in self._varying:
                masked[where] = zeros
            if masked == self._masked:
                return self._client_id, _at_other_offsets(frame, known)
        header = parse_request_header(frame)
        request = scan_fetch_request(frame, header)
        self._remember(frame, header.client_id, request)
        return header.client_id, request

    def _remember(self, frame: Buffer, client_id: str | None, request: FetchRequest) -> None:
        if len(frame) > _MOST_REMEMBERED_BYTES:
            self._request, self._masked, self._varying = None, bytearray(), ()
            return
        self._client_id, self._request = client_id, request
        wheres = [_CORRELATION_ID]
        layout = LAYOUTS[request.api_version]
        for topic in request.topics:
            for partition in topic.partitions:
                start = partition.fetch_offset_position - layout.fetch_offset
                wheres.append(slice(start + layout.varying_start, start + layout.varying_end))
        self._varying = tuple((where, bytes(where.stop - where.start)) for where in wheres)
        self._masked = bytearray(frame)
        for where, zeros in self._varying:
            self._masked[where] = zeros


def _at_other_offsets(frame: Buffer, known: FetchRequest) -> FetchRequest:
    view, version = memoryview(frame), known.api_version
    topics = []
    for topic in known.topics:
        partitions = topic.partitions
        if partitions:
            start = partitions[0].fetch_offset_position - LAYOUTS[version].fetch_offset
            partitions, _ = scan_partitions(view, start, len(partitions), version)
        topics.append(FetchTopic(topic.name, topic.topic_id, partitions))
    return known._replace(topics=tuple(topics))
