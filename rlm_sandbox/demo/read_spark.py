"""Compares a DataFrame of records with what was acknowledged; contents are digested by workers."""

from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, Row

from rlm_sandbox.demo.comparison import Comparison
from rlm_sandbox.demo.content import content_digest
from rlm_sandbox.demo.reading import Yardstick

_WANTED = ("partition", "offset", "unix_millis(timestamp) AS ms", "key", "value", "headers")
_Digested = tuple[int, int, int, bytes]
"""Partition, offset, timestamp in ms, digest of key, value and headers."""


def compare(frame: DataFrame, yardstick: Yardstick) -> Comparison:
    """Every record of the frame; a DataFrame promises no order, so that none is asked of it."""
    comparison = Comparison(yardstick.expected)
    digested: list[_Digested] = frame.selectExpr(*_WANTED).rdd.mapPartitions(_digest).collect()
    for partition, offset, timestamp_ms, digest in sorted(digested):
        index = comparison.place(partition, offset, timestamp_ms)
        if index is not None and digest != yardstick.expected[partition].digests[index]:
            comparison.altered(partition, offset, "key, value or headers")
    comparison.finish()
    return comparison


def _digest(rows: Iterable[Row]) -> Iterator[_Digested]:
    for partition, offset, timestamp_ms, key, value, headers in rows:
        given = tuple((name, _bytes(content)) for name, content in headers or ())
        yield partition, offset, timestamp_ms, content_digest(_bytes(key), _bytes(value), given)


def _bytes(field: bytearray | None) -> bytes | None:
    return None if field is None else bytes(field)
