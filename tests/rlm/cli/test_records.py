"""Records of fetched batches as a consumer would get them."""

import struct

import pytest

from kip405.errors import Corrupt
from rlm.cli.output import Wanted, user_records
from tests.kip405.batch_builder import batch, with_attributes, with_body

CONTROL = 0x20
ABORT, COMMIT = 0, 1


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """A control batch that ends a transaction."""
    key = struct.pack(">hh", 0, kind)
    record = b"\x00\x00\x00" + bytes([len(key) << 1]) + key + b"\x01\x00"
    made = batch(offset, 1, transactional=True, producer_id=producer_id)
    return with_attributes(with_body(made, bytes([len(record) << 1]) + record), CONTROL)


def offsets(batches: bytes, **fields: object) -> list[int]:
    wanted = Wanted(**{"start_offset": 0, **fields})  # type: ignore[arg-type]
    return [record.offset for record in user_records(batches, wanted)]


def test_h09_what_was_aborted_is_left_out_up_to_its_marker() -> None:
    log = b"".join(
        (
            batch(0, 2, transactional=True, producer_id=7),
            batch(2, 2, transactional=True, producer_id=8),
            batch(4, 1),
            marker(5, 7, ABORT),
            batch(6, 1, transactional=True, producer_id=7),
            marker(7, 8, COMMIT),
            marker(8, 7, COMMIT),
        )
    )
    assert offsets(log, aborted=((7, 0),)) == [2, 3, 4, 6]
    assert offsets(log) == [0, 1, 2, 3, 4, 6]
    assert offsets(log, start_offset=3, aborted=((7, 0),)) == [3, 4, 6]


def test_damaged_batches_are_corrupt() -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(Corrupt):
        offsets(bytes(damaged))
