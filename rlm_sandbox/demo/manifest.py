"""The records that brokers acknowledged, with which every read is compared.

Per partition, by offset: timestamp, serial number of the content, digest of key, value and headers,
and whether its transaction was aborted. Must not know a client.
"""

import gzip
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


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
