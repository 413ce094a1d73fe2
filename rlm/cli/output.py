"""Shows answers: JSON unchanged, tables with rich on a terminal, plain columns elsewhere.

Records of fetched batches are shown as a consumer would get them: control records are left out, and
so are records of aborted transactions where the answer lists those (read_committed). Source:
Kafka's FetchCollector. This part is pure.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from google.protobuf.message import Message

from kip405.aborted import AbortedProducers
from kip405.batches import batch_headers, check_crc
from kip405.ids import Uuid
from kip405.records import Record, records
from rlm.v1.admin_pb2 import PendingDeletion
from rlm.v1.fetch_pb2 import PartitionDescription

_UUID_BYTES = 16
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON values: every field, numbers as numbers, ids in Kafka's text.

    null stands for a value that is not known; a message that is not there has no field.
    """
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if not field.has_presence or message.HasField(field.name):
            shown[field.name] = _value(getattr(message, field.name))
        elif field.message_type is None:
            shown[field.name] = None
    return shown


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_value(one) for one in value]
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, bytes):
        return str(Uuid(value)) if len(value) == _UUID_BYTES else value.hex()
    return value


def show_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def show_table(headers: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """A table, or the words for none."""
    if not rows:
        click.echo(empty)
        return
    cells = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _show_rich(headers, cells)
        return
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for row in (headers, *cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _show_rich(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, header_style="bold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def show_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Names and values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{name.ljust(width)}  {value}")


def warn(warnings: Sequence[str]) -> None:
    """Each on a line of standard error."""
    for text in warnings:
        click.echo(f"warning: {text}", err=True)


def human_ms(value: int) -> str:
    """`180d`, `90m`, `1500ms`; -1 and -2 in words."""
    if value < 0:
        return {-1: "unlimited", -2: "as total"}.get(value, str(value))
    for unit, size_ms in _UNITS_MS:
        if value and value % size_ms == 0:
            return f"{value // size_ms}{unit}"
    return f"{value}ms"


def human_size(value: int) -> str:
    """`1.5 GiB`; -1 and -2 in words."""
    from rlm.plans.problems import human_bytes

    return human_ms(value) if value < 0 else human_bytes(value)


def human_rate(bytes_per_second: int) -> str:
    """`1.5 GiB/s`."""
    return f"{human_size(bytes_per_second)}/s"


def human_time(time_ms: int) -> str:
    """UTC, to the second."""
    if time_ms < 0:
        return "-"
    from rlm.plans.problems import human_utc

    return human_utc(time_ms)


def human_retention(time_ms: int, size_bytes: int) -> str:
    """Both limits, as far as there are any."""
    if time_ms == size_bytes:
        return (
            human_ms(time_ms) if time_ms < 0 else f"{human_ms(time_ms)}, {human_size(size_bytes)}"
        )
    limits = [human_ms(time_ms)] if time_ms != -1 else []
    if size_bytes != -1:
        limits.append(human_size(size_bytes))
    return ", ".join(limits)


def human_wait(duration_ms: int) -> str:
    """Two units at most: `23h 59m`, `1m 5s`, `0s`."""
    left, words = duration_ms // 1000, []
    for unit, size_ms in _UNITS_MS:
        count, left = divmod(left, size_ms // 1000)
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words[:2]) or "0s"


def due_in(row: PendingDeletion) -> str:
    """How long a deletion can be undone at least."""
    if row.HasField("due_in_ms"):
        return human_wait(row.due_in_ms)
    return "not decided" if row.kind.startswith("topic-") else "unknown (not announced yet)"


def lag(row: PartitionDescription) -> str:
    """`3 / 1.5 GiB`, or that it is not known."""
    if not (row.HasField("lag_segments") and row.HasField("lag_bytes")):
        return "unknown"
    return f"{row.lag_segments} / {human_size(row.lag_bytes)}"


def offset(value: int) -> str:
    """-1 = not known."""
    return "-" if value < 0 else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Offsets from `start_offset` on; `aborted` = (producer id, first offset) of the answer."""

    start_offset: int
    aborted: Sequence[tuple[int, int]] = ()


def user_records(batches: bytes, wanted: Wanted) -> Iterator[Record]:
    """Records for a user, in order; Corrupt for damaged batches."""
    aborted = AbortedProducers(wanted.aborted)
    for position, header in batch_headers(batches, 0, len(batches)):
        check_crc(batches, position, header)
        if aborted.has_aborted(batches, position, header) or header.is_control:
            continue
        for record in records(batches, position):
            if record.offset >= wanted.start_offset:
                yield record
