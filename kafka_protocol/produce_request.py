"""Scans a Produce request while it flows, and spoils what it has for topics that are refused.

A request cannot be taken apart while it flows: its size and its counts are sent first. So the index
of each refused partition is made one that no partition can have, in place. The broker answers for
it, and for it alone, that there is no such partition: nothing of it is written, and no sequence
number of an idempotent producer is used. `kafka_protocol.produce` then gives the answer the index
that the client knows, and the error that it is meant to see. Records are never looked at. This
module must not know which topics are refused.
"""

import struct
from collections.abc import Callable

from kafka_protocol.apis import PRODUCE
from kafka_protocol.primitives import Buffer, Reader, WireError
from kafka_protocol.topic_walk import Part, TopicWalk

IsRefused = Callable[[Buffer], bool]
"""Whether a topic with these bytes as its name (up to v12) or id (v13 on) is refused."""

MAX_HEAD_BYTES = 140_000
"""Between two runs of records; client id and transactional id have at most 32767 bytes each."""
_INT32 = struct.Struct(">i")
_FIRST_WITH_TRANSACTIONAL_ID = 3
_FIRST_WITH_TOPIC_ID = 13
_KEY_VERSION_AND_CORRELATION_ID_BYTES = 8
_ACKS_AND_TIMEOUT_BYTES = 6


def spoiled(index: int) -> int:
    """A partition index that does not exist; applied again it is the index. Others stay."""
    return ~index


class ProduceRequestScanner(TopicWalk):
    """Scans one frame of `size_bytes` (no length before it), v0 to v13."""

    def __init__(self, size_bytes: int, api_version: int, is_refused: IsRefused) -> None:
        super().__init__(is_flexible=PRODUCE.is_flexible(api_version))
        self.left_bytes = size_bytes
        """Bytes of the frame that `scan` has not counted yet."""
        self.refused_partitions = 0
        self._version = api_version
        self._is_refused = is_refused
        self._is_topic_refused = False

    def scan(self, view: memoryview) -> tuple[int, int]:
        """How many bytes at the start of the view may be passed on, 0 = more are needed; and how
        many bytes of records follow them, which are not to be shown here.

        The view must be writable where anything is refused. Raises `WireError` where the frame is
        not a Produce request.
        """
        view = view[: self.left_bytes]
        if not self._partial.is_due(len(view), self.left_bytes):
            return 0, 0
        reader = Reader(view, what=f"Produce v{self._version} request")
        passed_bytes = records_bytes = 0
        try:
            self._partial.succeeded()
            while self._part is not Part.END and not records_bytes:
                records_bytes = self._step(reader)
                passed_bytes = reader.position
        except WireError:
            if len(view) == self.left_bytes or len(view) - passed_bytes > MAX_HEAD_BYTES:
                raise
            self._partial.ended_early(len(view) - passed_bytes)
        self.left_bytes -= passed_bytes + records_bytes
        if self.left_bytes < 0 or (self._part is Part.END) != (self.left_bytes == 0):
            raise reader.fail(f"{self.left_bytes} bytes left")
        return passed_bytes, records_bytes

    def _step(self, reader: Reader) -> int:
        """Read the next part; the size of the records behind it. Nothing changes where bytes are
        missing.
        """
        if self._part is Part.PARTITION:
            return self._read_partition(reader)
        if self._part is Part.TOPIC:
            self._read_topic(reader)
        elif self._part is Part.HEAD:
            self._read_head(reader)
        else:
            reader.skip_tags()
            self._end_tags()
        return 0

    def _read_head(self, reader: Reader) -> None:
        reader.view(_KEY_VERSION_AND_CORRELATION_ID_BYTES)
        reader.skip_string(flexible=False)  # the client id
        if self._is_flexible:
            reader.skip_tags()
        if self._version >= _FIRST_WITH_TRANSACTIONAL_ID:
            reader.skip_string(flexible=self._is_flexible)
        reader.view(_ACKS_AND_TIMEOUT_BYTES)
        self._begin_topics(self._count(reader))

    def _read_topic(self, reader: Reader) -> None:
        topic: Buffer
        if self._version >= _FIRST_WITH_TOPIC_ID:
            topic = reader.uuid()
        else:
            size_bytes = reader.uvarint() - 1 if self._is_flexible else reader.int16()
            topic = reader.view(size_bytes)
        count = self._count(reader)
        self._is_topic_refused = self._is_refused(topic)
        self._begin_partitions(count)

    def _read_partition(self, reader: Reader) -> int:
        index_at = reader.position
        index = reader.int32()
        size_bytes = reader.uvarint() - 1 if self._is_flexible else reader.int32()
        if size_bytes < -1:
            raise reader.fail(f"{size_bytes} bytes of records")
        if self._is_topic_refused:
            self.refused_partitions += 1
            if index >= 0:
                _INT32.pack_into(reader.buffer, index_at, spoiled(index))
        self._end_partition()
        return max(size_bytes, 0)

    def _count(self, reader: Reader) -> int:
        """Elements of an array; those that come may not be in the view yet."""
        count = reader.uvarint() - 1 if self._is_flexible else reader.int32()
        if not -1 <= count <= self.left_bytes:
            raise reader.fail(f"array of {count} elements in {self.left_bytes} bytes")
        return max(count, 0)
