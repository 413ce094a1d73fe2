"""Packing from bytes reads what the checked decoding reads, or leaves the record to it."""

import random
from dataclasses import replace

import pytest

from kip405.errors import Corrupt
from kip405.ids import TopicIdPartition
from rlmm.packed import Names, is_certain, pack, unpack, with_certainty
from rlmm.record_packer import RawHeaders, RecordPacker
from rlmm.records import LedgerKey, LedgerRecord, RecordHeaders, decode_record, encode_record_value
from tests.rlmm.builders import DELETING, FINISHED, KEY, PARTITION, STARTED, record, segment, uuid

CUSTOM = (None, b"", b"x", b"y" * 126, b"z" * 127, b"z" * 128)


def raw(one: LedgerRecord) -> tuple[bytes, bytes | None, RawHeaders]:
    return one.key.encode(), encode_record_value(one.metadata), tuple(one.headers.encode())


def of(number: int, **changes: object) -> LedgerRecord:
    made = replace(segment(number), **changes)  # type: ignore[arg-type]
    headers = RecordHeaders(leader_epoch=5, expected_previous=0, writer=uuid(9))
    key = LedgerKey.of(made.segment_id)
    return LedgerRecord(key=key, metadata=made, headers=headers, offset=number, timestamp_ms=77)


RECORDS = (
    *(of(number, custom_metadata=custom) for number, custom in enumerate(CUSTOM)),
    *(of(number, state=state) for number, state in enumerate((STARTED, DELETING, FINISHED))),
    of(1, txn_index_empty=True),
    of(2, segment_leader_epochs=segment(2, epochs=((0, 20), (4, 25))).segment_leader_epochs),
    of(3, start_offset=0, end_offset=2**63 - 1, broker_id=-1, segment_size_bytes=2**31 - 1),
    of(4, max_timestamp_ms=-1, event_timestamp_ms=-1),
    record(5, 5, None),
)


@pytest.mark.parametrize("one", RECORDS)
def test_a_packed_record_is_unpacked_as_it_was(one: LedgerRecord) -> None:
    names = Names()
    packed = pack(one, names)
    assert unpack(packed, KEY, names) == one
    seen = with_certainty(packed, certain=True)
    assert (is_certain(packed), is_certain(seen)) == (False, True)
    assert unpack(seen, KEY, names) == one
    assert with_certainty(seen, certain=False) == packed


def usual(packer: RecordPacker, one: LedgerRecord) -> bytes | None:
    key, value, headers = raw(one)
    found = packer.pack_usual(
        key=key, value=value, headers=headers, offset=one.offset, timestamp_ms=one.timestamp_ms
    )
    assert found is None or found[0] == KEY
    return None if found is None else found[1]


def test_a_usual_record_is_packed_from_its_bytes() -> None:
    packer = RecordPacker(Names())
    assert usual(packer, RECORDS[0]) is None  # its partition was not seen before
    packer.pack(RECORDS[0])
    found = [usual(packer, one) for one in RECORDS]
    unusual = [one for one, packed in zip(RECORDS, found, strict=True) if packed is None]
    assert unusual == [RECORDS[4], RECORDS[5], RECORDS[10], RECORDS[13]]
    for one, packed in zip(RECORDS, found, strict=True):
        assert packed is None or packed == packer.pack(one)


def test_a_topic_of_another_name_is_packed_with_its_own() -> None:
    packer, names = RecordPacker(Names()), Names()
    renamed = TopicIdPartition(topic_id=PARTITION.topic_id, topic="order", partition=3)
    other = of(1, segment_id=replace(segment(1).segment_id, topic_id_partition=renamed))
    packer.pack(RECORDS[0])
    assert usual(packer, other) is None
    assert unpack(pack(other, names), KEY, names) == other


@pytest.mark.parametrize("seed", range(8))
def test_damaged_bytes_are_read_as_the_checked_decoding_reads_them(seed: int) -> None:
    """Any byte changed, cut or added; a record is packed only where the decoding accepts it."""
    draw, names = random.Random(seed), Names()
    packer = RecordPacker(names)
    packer.pack(RECORDS[0])
    packed_ones = 0
    for _ in range(4_000):
        one = draw.choice(RECORDS[:-1])
        key, value, headers = raw(one)
        assert value is not None
        parts = [bytearray(key), bytearray(value), *(bytearray(data) for _, data in headers)]
        for _ in range(draw.choice([0, 1, 1, 2])):
            _damage(draw.choice(parts), draw)
        key, value = bytes(parts[0]), bytes(parts[1])
        names_of = [name for name, _ in headers]
        headers = tuple(zip(names_of, map(bytes, parts[2:]), strict=True))
        found = packer.pack_usual(key=key, value=value, headers=headers, offset=3, timestamp_ms=4)
        if found is None:
            continue
        packed_ones += 1
        try:
            decoded = decode_record(key=key, value=value, headers=headers, offset=3, timestamp_ms=4)
        except Corrupt:
            pytest.fail(f"{value.hex()} is corrupt and was packed")
        assert isinstance(decoded, LedgerRecord)
        assert decoded.key.partition == found[0]
        assert pack(decoded, names) == found[1]
    assert packed_ones > 500


def _damage(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data)) if data else 0
    kind = draw.randrange(4)
    if kind == 0 and data:
        del data[at]
    elif kind == 1:
        data.insert(at, draw.randrange(256))
    elif kind == 2:
        del data[at:]
    elif data:
        data[at] = draw.choice([0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)])
