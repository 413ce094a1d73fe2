"""What facts say of stores beyond the first format: written where known, read where present."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.segments import Layout
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import ServiceRecord, SettingsRecord, Stamp, StoreRecord, TopicRecord

STORE, OTHER = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)
STAMP = Stamp(node_id=1, leader_epoch=-1, writer=OTHER, time_ms=5)
PLAIN = StoreRecord(store_id=STORE, plugin="s3", uri="s3://a", prefix="")
TOPIC = TopicRecord(
    topic_id=OTHER,
    name="t",
    mode="copy",
    state="enabled",
    trim=False,
    retention_ms=-1,
    retention_bytes=-1,
    local_retention_ms=-2,
    local_retention_bytes=-2,
)
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


@pytest.mark.parametrize("layout", [None, *Layout])
def test_a_topics_layout_comes_back(layout: Layout | None) -> None:
    record = replace(TOPIC, layout=layout)
    assert decode_settings_record(*encode_settings_record(record, STAMP)) == (record, STAMP)
    assert document(record).get("layout") == (None if layout is None else str(layout))


def test_an_unknown_layout_of_a_topic_is_corrupt() -> None:
    key, value = encode_settings_record(TOPIC, STAMP)
    broken = json.dumps({**json.loads(value), "layout": "pulsar"}).encode()
    with pytest.raises(Corrupt, match="none of kafka, blocks"):
        decode_settings_record(key, broken)
