"""Audits every byte of one segment: its objects agree with the ledger and can be decoded.

The checks that need no decoder are those of `kip405/segment_check.py`. The audit continues after a
finding and checks whatever it still can. Memory is bounded by one range, one batch and the
indexes. This module must not know where the bytes come from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kip405.batches import read_header, size_at
from kip405.errors import Corrupt
from kip405.segment_check import INDEXES, LOG, FlawKind, SegmentCheck
from rlm_spark.decode import arrow_schema, record_batches
from rlm_spark.pipelines.findings import AuditedSegment, Finding
from tiered_reads.errors import DecodeError
from tiered_reads.values import Fetched, OffsetRange


class BadObject(Exception):
    """The store does not have the object, or cannot read it."""

    def __init__(self, kind: FlawKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


class Objects(Protocol):
    """The bytes of one segment's objects, unchecked. BadObject; other errors are not about the
    data.
    """

    def indexes(self) -> bytes:
        """The whole object."""
        ...

    def log(self) -> Iterator[bytes]:
        """The whole object in pieces, and one byte more than expected if it has one."""
        ...


@dataclass(slots=True, kw_only=True)
class SegmentAudit:
    """The result of one segment."""

    segment: AuditedSegment
    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0

    def run(self, objects: Objects) -> "SegmentAudit":
        """Check everything; errors that are not about the data pass through."""
        check = SegmentCheck(self.segment.metadata)
        try:
            check.indexes(objects.indexes())
        except BadObject as error:
            check.found(error.kind, INDEXES, error.detail)
        log = _Log(objects, check, self.segment.metadata.start_offset)
        try:
            self._decode(log, check)
            log.drain()
        except BadObject as error:
            check.found(error.kind, LOG, error.detail)
        else:
            check.finish()
        self.size_bytes = check.size_bytes
        self.findings += [
            self.segment.finding(flaw.kind, flaw.suffix, flaw.detail) for flaw in check.flaws
        ]
        return self

    def _decode(self, log: "_Log", check: SegmentCheck) -> None:
        """Every record once through the decoder, as readers do."""
        metadata = self.segment.metadata
        wanted = OffsetRange(
            topic_partition=self.segment.topic_partition,
            start_offset=metadata.start_offset,
            end_offset=metadata.next_offset,
        )
        try:
            for batch in record_batches(
                log.pieces(), wanted, arrow_schema(("offset",)), read_committed=False
            ):
                self.records += batch.num_rows
        except DecodeError as error:
            check.found(FlawKind.RECORDS, LOG, str(error))


class _Log:
    """Passes the pieces of a log object to the decoder, and each of them to the check too."""

    def __init__(self, objects: Objects, check: SegmentCheck, start_offset: int) -> None:
        self._source = self._seen(objects.log(), check)
        self._next_offset = start_offset

    def _seen(self, source: Iterator[bytes], check: SegmentCheck) -> Iterator[bytes]:
        for data in source:
            check.feed(data)
            yield data

    def drain(self) -> None:
        """Check the rest too, if decoding ended early."""
        for _ in self._source:
            pass

    def pieces(self) -> Iterator[Fetched]:
        """Whole batches; ends before the first bytes that are not a whole batch."""
        carry = b""
        for data in self._source:
            buffer = carry + data if carry else data
            try:
                end, last = _whole_batches(buffer)
            except Corrupt:
                return
            if end:
                start, self._next_offset = self._next_offset, last + 1
                yield Fetched(
                    batches=buffer[:end], start_offset=start, next_offset=self._next_offset
                )
            carry = buffer[end:]


def _whole_batches(buffer: bytes) -> tuple[int, int]:
    """Where the last whole batch of the buffer ends, and its last offset."""
    position, last = 0, -1
    while (size := size_at(buffer, position)) and position + size <= len(buffer):
        position, last = position + size, read_header(buffer, position).last_offset
    return position, last
