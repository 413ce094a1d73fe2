"""What an export wrote, as a plain Parquet reader sees it."""

import hashlib
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.spark.lab import Seen, in_order


def exported(root: Path, topic: str) -> list[Seen]:
    """All rows of the one topic, in the order of the log."""
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    assert set(map(str, table["topic"].to_pylist())) == {topic}
    return in_order([_seen(row) for row in table.to_pylist()])


def _seen(row: Mapping[str, Any]) -> Seen:
    value = row["value"]
    return Seen(
        row["partition"],
        row["offset"],
        row["timestamp"].astimezone(UTC),
        row["timestampType"],
        row["key"],
        None if value is None else hashlib.md5(value).hexdigest(),
        _headers(row["headers"]),
    )


def _headers(given: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...] | None:
    return None if given is None else tuple((one["key"], one["value"]) for one in given)
