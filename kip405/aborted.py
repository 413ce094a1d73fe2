"""Which batches of a Fetch answer belong to aborted transactions. Pure.

Source: Kafka's FetchCollector.
"""

from collections import deque
from collections.abc import Iterable

from kip405.batches import BatchHeader
from kip405.crc import ByteBuffer
from kip405.records import ControlType, records


class AbortedProducers:
    """Of one answer, whose batches are asked for in their order. A producer may commit behind what
    it has aborted: the marker of an abort ends that.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """The list of the answer: producer id and first offset of each aborted transaction."""
        self._waiting = deque(sorted(aborted, key=lambda pair: pair[1]))
        self._open: set[int] = set()

    def has_aborted(self, data: ByteBuffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch at a position has records of an aborted transaction; one of control
        records has none.
        """
        while self._waiting and self._waiting[0][1] <= header.last_offset:
            self._open.add(self._waiting.popleft()[0])
        if header.is_control:
            marker = next(records(data, position), None)
            if marker is not None and marker.control_type == ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open
