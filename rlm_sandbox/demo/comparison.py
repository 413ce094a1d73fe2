"""Compares what a client reads with what was acknowledged, record by record, in order.

`Manifest` collects the acknowledged records: per partition, by offset, with timestamp, serial
number of the content, digest of key, value and headers, and whether the transaction was aborted.
`Comparison.match` finds the expected record of an (offset, timestamp) and notes what is missing,
twice, out of order or foreign; the reader compares contents and reports `altered`. `Yardstick` is
the expectation that all readers share. Must not know a client.
"""

import enum
import gzip
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rlm_sandbox.demo.content import Content, DemoRecord, Headers, content_digest


class Acknowledged(NamedTuple):
    """One record that a broker acknowledged."""

    offset: int
    timestamp_ms: int
    serial: int
    digest: bytes
    aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The records that a reader must get of one partition: columns, ascending by offset."""

    offsets: "array[int]"
    timestamps_ms: "array[int]"
    serials: "array[int]"
    digests: list[bytes]

    def __len__(self) -> int:
        return len(self.offsets)


class Manifest:
    """Collects acknowledgements; `expected` is asked when all producers are done."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Acknowledged]] = {}
        self.records = 0
        self.aborted_records = 0
        self.value_bytes = 0

    def add(self, partition: int, row: Acknowledged, *, value_bytes: int) -> None:
        """Note one acknowledgement; `value_bytes` counts towards committed data only."""
        self._rows.setdefault(partition, []).append(row)
        if row.aborted:
            self.aborted_records += 1
        else:
            self.records += 1
            self.value_bytes += value_bytes

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self._rows))

    def expected(self, *, committed_only: bool) -> Mapping[int, Expected]:
        """By partition, what a read_committed (else read_uncommitted) consumer must get."""
        return {
            partition: _columns(
                sorted(row for row in self._rows[partition] if not (committed_only and row.aborted))
            )
            for partition in self.partitions
        }

    def save(self, path: Path) -> None:
        """Write it as gzipped lines of partition, offset, timestamp, serial, digest, aborted."""
        with gzip.open(path, "wt", encoding="ascii", compresslevel=1) as file:
            for partition in self.partitions:
                for row in sorted(self._rows[partition]):
                    offset, timestamp_ms, serial, digest, aborted = row
                    position = f"{partition},{offset},{timestamp_ms},{serial}"
                    file.write(f"{position},{digest.hex()},{int(aborted)}\n")


def _columns(rows: list[Acknowledged]) -> Expected:
    return Expected(
        offsets=array("q", (row.offset for row in rows)),
        timestamps_ms=array("q", (row.timestamp_ms for row in rows)),
        serials=array("q", (row.serial for row in rows)),
        digests=[row.digest for row in rows],
    )


MAX_SHOWN = 12


class Kind(enum.Enum):
    """Kinds of differences."""

    MISSING = "missing"
    TWICE = "twice"
    OUT_OF_ORDER = "out of order"
    NOT_EXPECTED = "not expected"
    TIMESTAMP = "other timestamp"
    ALTERED = "altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference, at one offset."""

    kind: Kind
    partition: int
    offset: int
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"partition {self.partition} offset {self.offset} {self.kind.value}{detail}"


@dataclass(slots=True)
class _Cursor:
    expected: Expected
    next_index: int = 0


class Comparison:
    """One full read by one client; `finish` once, then ask `counts` and `shown`."""

    def __init__(self, expected: Mapping[int, Expected]) -> None:
        self._cursors = {partition: _Cursor(one) for partition, one in expected.items()}
        self._skipped: dict[int, set[int]] = {partition: set() for partition in expected}
        self.expected_records = sum(len(one) for one in expected.values())
        self.read_records = 0
        self.counts: Counter[Kind] = Counter()
        self.shown: list[Difference] = []

    @property
    def is_equal(self) -> bool:
        """Nothing differs so far."""
        return not self.counts

    def match(self, partition: int, offset: int, timestamp_ms: int) -> int | None:
        """Index of the expected record of the next one read; None when it is none or was read."""
        self.read_records += 1
        cursor = self._cursors.get(partition)
        if cursor is None:
            self._note(Kind.NOT_EXPECTED, partition, offset, "no record was put in this partition")
            return None
        index = cursor.next_index
        offsets = cursor.expected.offsets
        if index >= len(offsets) or offsets[index] != offset:
            found = self._out_of_order(cursor, partition, offset)
            if found is None:
                return None
            index = found
        else:
            cursor.next_index = index + 1
        wanted_ms = cursor.expected.timestamps_ms[index]
        if wanted_ms != timestamp_ms:
            self._note(Kind.TIMESTAMP, partition, offset, f"{timestamp_ms}, not {wanted_ms}")
        return index

    def altered(self, partition: int, offset: int, detail: str) -> None:
        """Report that the content of a record that was matched differs."""
        self._note(Kind.ALTERED, partition, offset, detail)

    def finish(self) -> None:
        """The read is over: what was never seen is missing."""
        for partition, cursor in self._cursors.items():
            missing = self._skipped[partition]
            missing.update(cursor.expected.offsets[cursor.next_index :])
            self.counts[Kind.MISSING] += len(missing)
            for first, last in _runs(sorted(missing), cursor.expected):
                self._show(Kind.MISSING, partition, first, f"up to {last}")
        self.counts = +self.counts

    def _out_of_order(self, cursor: _Cursor, partition: int, offset: int) -> int | None:
        offsets = cursor.expected.offsets
        index = bisect_left(offsets, offset)
        if index >= len(offsets) or offsets[index] != offset:
            self._note(Kind.NOT_EXPECTED, partition, offset, "no record may be read here")
            return None
        if index > cursor.next_index:
            self._skipped[partition].update(offsets[cursor.next_index : index])
            cursor.next_index = index + 1
            return index
        if offset not in self._skipped[partition]:
            self._note(Kind.TWICE, partition, offset)
            return None
        self._skipped[partition].remove(offset)
        self._note(Kind.OUT_OF_ORDER, partition, offset, "after a later offset")
        return index

    def _note(self, kind: Kind, partition: int, offset: int, detail: str = "") -> None:
        self.counts[kind] += 1
        self._show(kind, partition, offset, detail)

    def _show(self, kind: Kind, partition: int, offset: int, detail: str) -> None:
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(
                Difference(kind=kind, partition=partition, offset=offset, detail=detail)
            )


def _runs(missing: list[int], expected: Expected) -> Iterator[tuple[int, int]]:
    """First and last of each run of missing offsets that are neighbours in what was expected."""
    at = 0
    while at < len(missing):
        first = missing[at]
        index = bisect_left(expected.offsets, first)
        while at < len(missing) and expected.offsets[index] == missing[at]:
            at += 1
            index += 1
            if index == len(expected):
                break
        yield first, missing[at - 1]


def content_differences(
    wanted: DemoRecord, key: bytes | None, value: bytes | None, headers: Headers
) -> str:
    """Which of key, value and headers differ, and how, in words."""
    fields: Iterable[tuple[str, object, object]] = (
        ("key", wanted.key, key),
        ("value", wanted.value, value),
        ("headers", wanted.headers, headers),
    )
    return "; ".join(
        f"{name} is {_brief(got)}, not {_brief(want)}" for name, want, got in fields if want != got
    )


def _brief(field: object) -> str:
    if field is None:
        return "null"
    if not field:
        return "empty"
    text = repr(field)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"


Progress = Callable[[int], None]
"""Called now and then with the number of records read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """The records that must be read, and their content, to name the fields that differ."""

    expected: Mapping[int, Expected]
    content: Content

    @property
    def records(self) -> int:
        return sum(len(one) for one in self.expected.values())


class RecordCheck:
    """Compares records given as fields; used by the clients that give fields."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.comparison = Comparison(yardstick.expected)
        self._yardstick = yardstick

    def see(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """The next record that the client gave."""
        index = self.comparison.match(partition, offset, timestamp_ms)
        if index is None:
            return
        expected = self._yardstick.expected[partition]
        if content_digest(key, value, headers) != expected.digests[index]:
            wanted = self._yardstick.content.record(expected.serials[index])
            detail = content_differences(wanted, key, value, headers)
            self.comparison.altered(partition, offset, detail)
