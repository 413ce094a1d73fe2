"""A small manifest and the reads that fit it."""

from rlm_sandbox.demo.comparison import Acknowledged, Manifest, Yardstick
from rlm_sandbox.demo.content import Content, DemoRecord, content_digest

CONTENT = Content(seed=7, start_ms=1_700_000_000_000)
PARTITION = 1
ABORTED_OFFSETS = (4, 5)
GAP_OFFSET = 6
"""Where a transaction's marker lies: nobody reads a record there."""


def manifest(count: int = 20) -> Manifest:
    """Partition 1 with `count` records: 4 and 5 aborted, no record at 6."""
    made = Manifest()
    offsets = [offset for offset in range(count + 1) if offset != GAP_OFFSET]
    # Producers are acknowledged independently of each other: not in the order of offsets.
    for serial, offset in sorted(enumerate(offsets), key=lambda pair: (pair[0] % 3, pair[0])):
        record = CONTENT.record(serial)
        row = Acknowledged(
            offset=offset,
            timestamp_ms=record.timestamp_ms,
            serial=serial,
            digest=content_digest(record.key, record.value, record.headers),
            aborted=offset in ABORTED_OFFSETS,
        )
        made.add(PARTITION, row, value_bytes=len(record.value or b""))
    return made


def yardstick(*, committed_only: bool = True) -> Yardstick:
    expected = manifest().expected(committed_only=committed_only)
    return Yardstick(expected=expected, content=CONTENT)


def right_read(of: Yardstick) -> list[tuple[int, DemoRecord]]:
    """Offsets and records as a correct client gives them."""
    expected = of.expected[PARTITION]
    return [
        (offset, CONTENT.record(serial))
        for offset, serial in zip(expected.offsets, expected.serials, strict=True)
    ]
