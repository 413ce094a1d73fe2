"""Scans a Fetch response while it flows, so that nobody has to hold its records.

`scan_fetch_response` needs the whole frame; this scanner needs only the part that begins where the
last one ended, and says how much of it is understood. A partition without records is shown whole,
with its tagged fields; of another one the head, which ends where its records begin. This module
must not know sockets, buffers or what a decision is based on.
"""

import struct

from kafka_protocol.apis import FETCH
from kafka_protocol.fetch.response import (
    FetchedPartition,
    fetched_partition_head,
    skip_tags,
)
from kafka_protocol.primitives import UUID_SIZE_BYTES, WireError, read_uvarint
from kafka_protocol.topic_walk import Part, TopicWalk

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_CORRELATION_ID_BYTES = 4
_THROTTLE_BYTES = 4
_ERROR_AND_SESSION_BYTES = 6
_FIRST_WITH_SESSION = 7
_FIRST_WITH_TOPIC_ID = 13
_INCOMPLETE = (struct.error, IndexError, WireError)


class FetchResponseScanner(TopicWalk):
    """Scans one frame of `size_bytes` (no length before it), v4 to v18."""

    def __init__(self, size_bytes: int, api_version: int) -> None:
        if not FETCH.versions.has(api_version):
            raise WireError(f"Fetch v{api_version} response: only {FETCH.versions} are handled")
        super().__init__(is_flexible=FETCH.is_flexible(api_version))
        self.left_bytes = size_bytes
        """Bytes of the frame that were not understood yet."""
        self.api_version = api_version
        self._records_bytes = 0
        self._topic: str | bytes = ""

    @property
    def topic(self) -> str | bytes:
        """Name (up to v12) or 16-byte id of the topic that the partitions shown belong to."""
        return self._topic

    @property
    def is_at_tags(self) -> bool:
        """Whether the last tagged fields of the frame come next."""
        return self._part is Part.TAGS

    @property
    def records_bytes(self) -> int:
        """Bytes of records that come next."""
        return self._records_bytes if self._part is Part.RECORDS else 0

    def skip_records(self, size_bytes: int) -> None:
        """Count bytes of records, at most `records_bytes`, that took another way."""
        self._count(self._scan_records(size_bytes))

    def scan(self, view: memoryview) -> tuple[int, FetchedPartition | None]:
        """How many bytes at the start of the view are understood, 0 = more are needed; and the
        partition that they are the head of, if they are one, with positions in the view.

        A partition's head is scanned again until it was passed with `passed`; other bytes count as
        passed at once. Raises `WireError` where the frame is not a Fetch response.
        """
        view = view[: self.left_bytes]
        if not self._partial.is_due(len(view), self.left_bytes):
            return 0, None
        try:
            if self._part is Part.PARTITION:
                head = fetched_partition_head(view, self.api_version)
                self._check_records(head)
                return head.end, head
            size_bytes = self._scan_other(view)
        except _INCOMPLETE as error:
            if len(view) == self.left_bytes:
                raise self._fail(str(error)) from error
            self._partial.ended_early(len(view))
            return 0, None
        except ValueError as error:
            raise self._fail(str(error)) from error
        self._count(size_bytes)
        return size_bytes, None

    def passed(self, head: FetchedPartition) -> None:
        """The head of a partition that `scan` has shown was passed on."""
        self._records_bytes = max(head.records_size, 0)
        if self._records_bytes:
            self._part = Part.RECORDS
        else:
            self._next_partition()
        self._count(head.end)

    def _count(self, size_bytes: int) -> None:
        self._partial.succeeded()
        self.left_bytes -= size_bytes
        if (self._part is Part.END) != (self.left_bytes == 0):
            raise self._fail(f"{self.left_bytes} bytes left at {self._part.name}")

    def _check_records(self, head: FetchedPartition) -> None:
        if head.end + max(head.records_size, 0) > self.left_bytes:
            raise ValueError(f"{head.records_size} bytes of records in a shorter frame")

    def _fail(self, reason: str) -> WireError:
        what = f"Fetch v{self.api_version} response, {self.left_bytes} bytes before its end"
        return WireError(f"{what}: {reason}")

    def _scan_other(self, view: memoryview) -> int:
        """The end of the next part, which has no partition's head in it."""
        if self._part is Part.RECORDS:
            return self._scan_records(len(view))
        if self._part is Part.HEAD:
            return self._scan_head(view)
        if self._part is Part.TOPIC:
            return self._scan_topic(view)
        end = skip_tags(view, 0)
        self._end_tags()
        return end

    def _scan_records(self, at_most_bytes: int) -> int:
        size_bytes = min(self._records_bytes, at_most_bytes)
        self._records_bytes -= size_bytes
        if self._records_bytes == 0:
            self._end_partition()
        return size_bytes

    def _scan_head(self, view: memoryview) -> int:
        position = _CORRELATION_ID_BYTES
        if self._is_flexible:
            position = skip_tags(view, position)
        position += _THROTTLE_BYTES
        if self.api_version >= _FIRST_WITH_SESSION:
            position += _ERROR_AND_SESSION_BYTES
        count, position = self._array_count(view, position)
        self._begin_topics(count)
        return position

    def _scan_topic(self, view: memoryview) -> int:
        if self.api_version >= _FIRST_WITH_TOPIC_ID:
            start = 0
            position = UUID_SIZE_BYTES
        elif self._is_flexible:
            size_bytes, start = read_uvarint(view, 0)
            position = start + size_bytes - 1
        else:
            (size_bytes,) = _INT16.unpack_from(view)
            start, position = _INT16.size, _INT16.size + size_bytes
        if position < start:
            raise ValueError("a topic without a name")
        count, end = self._array_count(view, position)
        name = bytes(view[start:position])
        self._topic = name if self.api_version >= _FIRST_WITH_TOPIC_ID else name.decode()
        self._begin_partitions(count)
        return end

    def _array_count(self, view: memoryview, position: int) -> tuple[int, int]:
        """The number of elements, 0 for null; the position behind it."""
        if self._is_flexible:
            count, position = read_uvarint(view, position)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(view, position)
            position += _INT32.size
        if not -1 <= count <= self.left_bytes:
            raise ValueError(f"array of {count} elements")
        return max(count, 0), position
