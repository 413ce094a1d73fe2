"""What facts say of stores beyond the first format: written where known, read where present."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kip405.errors import Corrupt
from kip405.ids import Uuid
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import ServiceRecord, SettingsRecord, Stamp, StoreRecord

STORE, OTHER = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)
STAMP = Stamp(node_id=1, leader_epoch=-1, writer=OTHER, time_ms=5)
PLAIN = StoreRecord(store_id=STORE, plugin="s3", uri="s3://a", prefix="")
SERVICE = ServiceRecord(node_id=1, listen={}, advertised={}, version="1")


def document(record: SettingsRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(encode_settings_record(record, STAMP)[1])
    return found


@pytest.mark.parametrize(
    "record",
    [
        PLAIN,
        StoreRecord(store_id=STORE, plugin="s3", uri="s3://a", prefix="", names=("cold", "hot")),
        SERVICE,
        ServiceRecord(node_id=1, listen={}, advertised={}, version="1", stores=()),
        ServiceRecord(node_id=1, listen={}, advertised={}, version="1", stores=(STORE, OTHER)),
    ],
)
def test_round_trip(record: SettingsRecord) -> None:
    assert decode_settings_record(*encode_settings_record(record, STAMP)) == (record, STAMP)


def test_what_is_not_known_is_not_written() -> None:
    assert "names" not in document(PLAIN)
    assert "stores" not in document(SERVICE)


@pytest.mark.parametrize("record", [PLAIN, SERVICE])
def test_what_is_no_list_is_corrupt(record: SettingsRecord) -> None:
    key, value = encode_settings_record(record, STAMP)
    broken = json.dumps({**json.loads(value), "names": "hot", "stores": "x"}).encode()
    with pytest.raises(Corrupt):
        decode_settings_record(key, broken)
