"""Cuts the broker's byte stream into answers, by the requests that were passed on. Pure.

A broker answers in order, so a queue of expected answers is enough. Most bytes pass unparsed; a few
answers are assembled whole because they may be altered; and of a large Fetch answer only the heads
of its partitions are read while it flows, so that its records are never held. This module must not
know sockets, tasks or the remote tier.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_protocol.api_versions import cap_api_versions
from kafka_protocol.fetch import FetchResponseScanner
from kafka_protocol.node_addresses import (
    NodeAddresses,
    Rewrite,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_metadata,
)
from kafka_protocol.primitives import Buffer
from kafka_protocol.produce import LogStartLookup, patch_produce_response
from rlm.proxy.own_topics import OwnTopics
from rlm.proxy.session import (
    LENGTH_BYTES,
    Expected,
    FetchEntries,
    Intercept,
    SessionError,
    frame_size,
)

_RESPONSE_HEAD_BYTES = 8  # length, correlation id
_JOINED_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Assembled:
    """A whole answer, without its length."""

    expected: Expected
    frame: bytearray


@dataclass(frozen=True, slots=True)
class Streamed:
    """The last byte of an ASKED answer that was passed on piece by piece."""

    expected: Expected


Output = memoryview | Assembled | Streamed
_REWRITES: Mapping[Intercept, Rewrite] = {
    Intercept.METADATA: rewrite_metadata,
    Intercept.DESCRIBE_CLUSTER: rewrite_describe_cluster,
    Intercept.FIND_COORDINATOR: rewrite_find_coordinator,
}


def altered(
    whole: Assembled,
    produce_log_start: LogStartLookup,
    nodes: NodeAddresses | None,
    own_topics: OwnTopics,
) -> list[Buffer]:
    """The pieces that the client gets, without a length. `nodes`: see AddressLookup. Raises
    `WireError`.
    """
    frame, version, intercept = whole.frame, whole.expected.api_version, whole.expected.intercept
    if intercept is Intercept.PRODUCE:
        lookup, refuses = produce_log_start, own_topics.has
        return [patch_produce_response(frame, version, lookup, nodes, refuses)]
    if intercept is Intercept.API_VERSIONS:
        return [cap_api_versions(frame, version, own_topics.highest)]
    rewrite = _REWRITES.get(intercept)
    return [frame] if rewrite is None or nodes is None else rewrite(frame, version, nodes)


@dataclass(slots=True)
class _Scan:
    """A Fetch answer that is read while it flows; its length goes before the scanned bytes."""

    scanner: FetchResponseScanner
    entries: FetchEntries
    length_bytes: int = LENGTH_BYTES


class ResponseCutter:
    """Cuts the broker's byte stream by the expected answers, in their order.

    `may_assemble` is asked before an answer of a given size is assembled. If it refuses, nothing
    more is accepted until `resume`.
    """

    def __init__(
        self, max_frame_bytes: int, may_assemble: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._may_assemble = may_assemble
        self.has_admitted = False
        """Whether the broker has answered a request that needs authentication."""
        self.is_waiting = False
        """An answer that came may not be assembled yet, or not be passed on yet."""
        self._expected: deque[Expected] = deque()
        self._head = bytearray()
        self._streaming_bytes = 0
        self._scan: _Scan | None = None
        self._frame: bytearray | None = None
        self._filled_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether no answer is expected."""
        return not self._expected

    @property
    def is_assembling(self) -> bool:
        """Whether an answer is being received into memory that is already allocated."""
        return self._frame is not None

    @property
    def held_bytes(self) -> int:
        """Memory that bytes of the broker occupy here."""
        return len(self._head) + len(self._frame or b"")

    def resume(self) -> list[Output]:
        """Try again to assemble or to pass on the answer that waits; as `feed`."""
        return self.feed(b"")

    def expect(self, expected: Expected) -> None:
        """Remember an answer; call it in the order the requests are written."""
        self._expected.append(expected)

    def room(self, at_least: int) -> memoryview | None:
        """Where the next bytes may be received without a copy, while a frame is assembled."""
        if self._frame is None or len(self._frame) - self._filled_bytes < at_least:
            return None
        return memoryview(self._frame)[self._filled_bytes :]

    def filled(self, size_bytes: int) -> Assembled | None:
        """Count bytes that were received into `room`."""
        self._filled_bytes += size_bytes
        return self._assembled()

    @property
    def passing_bytes(self) -> int:
        """Bytes that come next and are passed on unread. 0 at the last one of an ASKED answer, of
        which `feed` says that it ended.
        """
        if self._head:
            return 0
        if self._scan is not None:
            return self._scan.scanner.records_bytes
        return self._streaming_bytes

    def skip(self, size_bytes: int) -> list[Output]:
        """Count bytes, at most `passing_bytes`, that took another way; as `feed`."""
        outputs: list[Output] = []
        if self._scan is not None:
            self._scan.scanner.skip_records(size_bytes)
            self._check_scanned(self._scan, outputs)
        else:
            self._streamed(size_bytes, outputs)
        return outputs

    def feed(self, data: Buffer) -> list[Output]:
        """Take bytes of any cut; returns pieces to pass on (views of the input, or of a few bytes
        joined with earlier ones) and whole frames. The input must be writable where a Fetch answer
        is changed on its way.
        """
        outputs: list[Output] = []
        view = memoryview(data)
        self.is_waiting = False
        while self._head:
            more = max(_JOINED_BYTES, len(self._head))  # a long head is parsed again each time
            joined = self._head + view[:more]
            view = view[more:]
            self._head = bytearray()
            self._take(memoryview(joined), outputs)
            if self.is_waiting or not len(view):
                self._head += view
                return outputs
        self._take(view, outputs)
        return outputs

    def _take(self, view: memoryview, outputs: list[Output]) -> None:
        position = 0
        while position < len(view) and not self.is_waiting:
            step = self._step(view[position:], outputs)
            if step is None:
                break
            position += step
        self._head += view[position:]

    def _step(self, view: memoryview, outputs: list[Output]) -> int | None:
        """Handle the start of these bytes; returns how many were handled, None when more are
        needed.
        """
        if self._streaming_bytes:
            size_bytes = min(self._streaming_bytes, len(view))
            outputs.append(view[:size_bytes])
            self._streamed(size_bytes, outputs)
            return size_bytes
        if self._scan is not None:
            return self._step_scanned(self._scan, view, outputs)
        if self._frame is not None:
            size_bytes = min(len(self._frame) - self._filled_bytes, len(view))
            self._frame[self._filled_bytes : self._filled_bytes + size_bytes] = view[:size_bytes]
            self._filled_bytes += size_bytes
            assembled = self._assembled()
            if assembled is not None:
                outputs.append(assembled)
            return size_bytes
        return self._begin(view)

    def _streamed(self, size_bytes: int, outputs: list[Output]) -> None:
        self._streaming_bytes -= size_bytes
        if self._streaming_bytes == 0:
            self._end_streamed(outputs)

    def _end_streamed(self, outputs: list[Output]) -> None:
        done = self._expected.popleft()
        if done.intercept is Intercept.ASKED:
            outputs.append(Streamed(done))

    def _step_scanned(self, scan: _Scan, view: memoryview, outputs: list[Output]) -> int | None:
        """Pass on what is understood of these bytes in one piece."""
        scanner = scan.scanner
        position, scan.length_bytes = scan.length_bytes, 0
        while position < len(view) and scanner.left_bytes:
            is_at_tags = scanner.is_at_tags
            size_bytes, head = scanner.scan(view[position:])
            if size_bytes == 0:
                break
            if is_at_tags:
                scan.entries.tags(view[position : position + size_bytes])
            elif head is not None:
                end = position + size_bytes
                if not scan.entries.entry(view[position:end], scanner.topic, head):
                    self.is_waiting = True
                    break
                scanner.passed(head)
            position += size_bytes
        if position:
            outputs.append(view[:position])
        self._check_scanned(scan, outputs)
        return position or None

    def _check_scanned(self, scan: _Scan, outputs: list[Output]) -> None:
        if scan.scanner.left_bytes == 0:
            self._scan = None
            self._end_streamed(outputs)

    def _begin(self, view: memoryview) -> int | None:
        """Decide about the frame that begins here; the length itself is taken when assembling."""
        if len(view) < _RESPONSE_HEAD_BYTES:
            return None
        size_bytes = frame_size(view, _RESPONSE_HEAD_BYTES - LENGTH_BYTES, None)
        correlation_id = int.from_bytes(view[4:8], "big", signed=True)
        if not self._expected or self._expected[0].correlation_id != correlation_id:
            raise SessionError("unexpected_answer", f"answer to {correlation_id} is not expected")
        expected = self._expected[0]
        self.has_admitted = self.has_admitted or expected.admits
        limit = expected.stream_above
        if expected.entries is not None and limit is not None and size_bytes > limit:
            scanner = FetchResponseScanner(size_bytes, expected.api_version)
            self._scan = _Scan(scanner, expected.entries)
            return 0
        if expected.intercept is Intercept.NOTHING or (limit is not None and size_bytes > limit):
            self._streaming_bytes = LENGTH_BYTES + size_bytes
            return 0
        frame_size(view, _RESPONSE_HEAD_BYTES - LENGTH_BYTES, self._max_frame_bytes)
        if not self._may_assemble(size_bytes):
            self.is_waiting = True
            return None
        self._frame, self._filled_bytes = bytearray(size_bytes), 0
        return LENGTH_BYTES

    def _assembled(self) -> Assembled | None:
        frame = self._frame
        if frame is None or self._filled_bytes < len(frame):
            return None
        self._frame = None
        return Assembled(self._expected.popleft(), frame)
