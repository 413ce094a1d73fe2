"""Records of fetched batches, as a consumer would get them. Pure.

Control records are left out, and so is what an aborted transaction wrote where the answer lists
those (read_committed). Source: Kafka's FetchCollector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kip405.batches import BatchHeader, check_crc, walk
from kip405.records import ControlType, Record, records


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Offsets from `start_offset` on; `aborted` = (producer id, first offset) of the answer."""

    start_offset: int
    aborted: Sequence[tuple[int, int]] = ()


def user_records(batches: bytes, wanted: Wanted) -> Iterator[Record]:
    """Records for a user, in order; Corrupt for damaged batches."""
    waiting = sorted(wanted.aborted, key=lambda pair: pair[1])
    open_producers: set[int] = set()
    for position, header in walk(batches, 0, len(batches)):
        check_crc(batches, position, header)
        while waiting and waiting[0][1] <= header.last_offset:
            open_producers.add(waiting.pop(0)[0])
        if header.is_control:
            _end_transaction(batches, position, header, open_producers)
            continue
        if header.is_transactional and header.producer_id in open_producers:
            continue
        for record in records(batches, position):
            if record.offset >= wanted.start_offset:
                yield record


def _end_transaction(
    batches: bytes, position: int, header: BatchHeader, open_producers: set[int]
) -> None:
    marker = next(records(batches, position), None)
    if marker is not None and marker.control_type == ControlType.ABORT:
        open_producers.discard(header.producer_id)
