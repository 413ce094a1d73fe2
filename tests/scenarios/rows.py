"""Records as clients see them: what brokers acknowledged to producers, and what readers got."""

import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a client sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def row_of(message: Any) -> Row:
    headers = message.headers() or []
    return Row(
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value) for name, value in headers),
    )


class Acknowledged:
    """The rows of one producer in the order of its reports; nobody else writes meanwhile.

    What a producer sends twice, because an answer was lost or a leader changed, is acknowledged
    with the time of the batch's newest record for all of it (Kafka's UnifiedLog, of duplicates), so
    the time that was sent counts. And librdkafka gives no offset to a batch that it knows to be
    written only because the next one was (rd_kafka_dr_implicit_ack): it is the offset behind the
    last. Whoever reads the topic sees whether the record is there.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._following: dict[int, int] = {}

    def add(self, message: Any, timestamp_ms: int) -> None:
        row = row_of(message)
        given: int | None = row.offset
        offset = self._following[row.partition] if given is None else given
        self._following[row.partition] = offset + 1
        self.rows.append(replace(row, offset=offset, timestamp_ms=timestamp_ms))


def collect(
    consumer: Consumer,
    ends: Mapping[int, int],
    timeout_s: float,
    on_row: Callable[[int], None] | None = None,
) -> list[Row]:
    """What a consumer reads until it is at `ends` (partition -> offset) everywhere."""
    rows: list[Row] = []
    open_partitions = {partition for partition, end in ends.items() if end > 0}
    deadline = time.monotonic() + timeout_s
    while open_partitions:
        assert time.monotonic() < deadline, f"{len(rows)} rows, {open_partitions} never ended"
        message: Any = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= ends[message.partition()]:
                open_partitions.discard(message.partition())
            continue
        assert error is None, error
        if message.offset() < ends[message.partition()]:
            rows.append(row_of(message))
            if on_row is not None:
                on_row(len(rows))
        if message.offset() + 1 >= ends[message.partition()]:
            open_partitions.discard(message.partition())
    return rows


def assert_same(read: list[Row], acked: list[Row]) -> None:
    """Equal, in order per partition, none missing, none twice."""
    for partition in sorted({row.partition for row in acked}):
        expected = [row for row in acked if row.partition == partition]
        found = [row for row in read if row.partition == partition]
        offsets = [row.offset for row in found]
        assert offsets == sorted(set(offsets)), f"partition {partition}: out of order or twice"
        assert offsets == [row.offset for row in expected], f"partition {partition}: other offsets"
        differing = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
        assert not differing, _words(differing)


def _words(differing: list[tuple[Row, Row]]) -> str:
    """The differing fields of the first pair, shortened."""
    read, acked = differing[0]
    fields = [
        f"{name} {str(one)[:60]}, acknowledged as {str(other)[:60]}"
        for name, one, other in zip(Row.__slots__, astuple(read), astuple(acked), strict=True)
        if one != other
    ]
    where = f"partition {read.partition}, offset {read.offset}"
    return f"{len(differing)} records differ, the first at {where}: {'; '.join(fields)}"
