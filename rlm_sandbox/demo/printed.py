"""What Java's console consumer prints for a record, byte for byte. Pure.

Source: org.apache.kafka.tools.consumer.DefaultMessageFormatter with the properties below; fields
are separated by tabs, bytes are printed as they are, a record ends with a line feed.
"""

from rlm_sandbox.demo.content import DemoRecord

NULL = b"<null>"

FORMATTER_PROPERTIES = {
    "print.timestamp": "true",
    "print.partition": "true",
    "print.offset": "true",
    "print.headers": "true",
    "print.key": "true",
    "print.value": "true",
    "null.literal": NULL.decode(),
}


def printed_place(partition: int, offset: int, timestamp_ms: int) -> bytes:
    """The first three fields, without the tab behind them."""
    return b"CreateTime:%d\tPartition:%d\tOffset:%d" % (timestamp_ms, partition, offset)


def printed_content(record: DemoRecord) -> bytes:
    """Headers, key and value, without the line feed."""
    headers = b",".join(
        name.encode() + b":" + (NULL if content is None else content)
        for name, content in record.headers
    )
    key = NULL if record.key is None else record.key
    value = NULL if record.value is None else record.value
    return b"\t".join((headers or b"NO_HEADERS", key, value))


def parsed_place(line: bytes) -> tuple[int, int, int, bytes]:
    """(partition, offset, timestamp, content) of a printed line; ValueError when it is none."""
    timestamp, partition, offset, content = line.split(b"\t", 3)
    return (
        _number(partition, b"Partition:"),
        _number(offset, b"Offset:"),
        _number(timestamp, b"CreateTime:"),
        content,
    )


def _number(field: bytes, name: bytes) -> int:
    if not field.startswith(name):
        raise ValueError(f"{field[:40]!r} does not begin with {name.decode()}")
    return int(field[len(name) :])
