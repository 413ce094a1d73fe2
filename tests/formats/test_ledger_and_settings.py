"""Golden files of the ledger's and the settings' formats: written once, never changed, read and
written byte for byte.

Each line of a file is `name hex` (ledger) or `key value` (settings). No test writes them.
"""

from pathlib import Path

import pytest

from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.lineage import Lineage
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.ledger import Hole
from rlmm.ledger_values import (
    decode_partition_delete,
    decode_value,
    encode_partition_delete,
    encode_value,
)
from rlmm.records import LaterRecord, LedgerKey, LedgerRecord, RecordHeaders, decode_record
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import (
    ClusterRecord,
    CopyLimitRecord,
    DeletionRecord,
    DiscardRecord,
    DivergenceRecord,
    FreezeRecord,
    GivenBack,
    HistoryRecord,
    HolesRecord,
    OffloadThresholds,
    ReaderRecord,
    ServiceRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    StoreRecord,
    TopicRecord,
    TotalRetention,
    TrimRecord,
)

HERE = Path(__file__).parent
TOPIC_ID = Uuid.parse("jF8s79t9SrG_PNqlwv7bAA")
SEGMENT_ID = Uuid.parse("AAECAwQFBgcICQoLDA0ODw")
STORE_ID = Uuid.parse("c3RvcmUtb25lLi4uLi4uLg")
GIVEN_ID = Uuid.parse("Z2l2ZW4tYmFjay4uLi4uLg")
WRITER = Uuid.parse("d3JpdGVyLW9uZS4uLi4uLg")
PARTITION = PartitionKey(TOPIC_ID, 3)
STAMP = Stamp(node_id=2, leader_epoch=7, writer=WRITER, time_ms=1_763_000_000_123)


def metadata(state: RemoteLogSegmentState) -> RemoteLogSegmentMetadata:
    is_copied = state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom = CustomMetadata(
        store_id=STORE_ID,
        entropy_bits=4,
        indexes_size_bytes=4_711 if is_copied else 0,
        log_crc32c=0xDEADBEEF if is_copied else 0,
        indexes_crc32c=0x01020304 if is_copied else 0,
        plugin=b"etag" if is_copied else b"",
    )
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=TopicIdPartition(topic_id=TOPIC_ID, topic="orders", partition=3),
            id=SEGMENT_ID,
        ),
        start_offset=1_000,
        end_offset=1_999,
        broker_id=2,
        max_timestamp_ms=1_762_999_999_000,
        event_timestamp_ms=1_763_000_000_123,
        segment_leader_epochs=(
            EpochEntry(epoch=5, start_offset=1_000),
            EpochEntry(epoch=7, start_offset=1_500),
        ),
        segment_size_bytes=1_048_576,
        custom_metadata=custom.encode(),
        state=state,
        txn_index_empty=state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


VALUES = {state.name: metadata(state) for state in RemoteLogSegmentState}
DELETIONS = {
    state.name: RemotePartitionDeleteMetadata(
        topic_id_partition=TopicIdPartition(topic_id=TOPIC_ID, topic="orders", partition=3),
        event_timestamp_ms=1_763_000_000_123,
        broker_id=2,
        state=state,
    )
    for state in RemotePartitionDeleteState
}
HEADERS = RecordHeaders(leader_epoch=7, expected_previous=-1, writer=WRITER)
TOMBSTONE_HEADERS = RecordHeaders(leader_epoch=8, expected_previous=3, writer=WRITER)
RECORDS: tuple[SettingsRecord, ...] = (
    ClusterRecord(
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        ledger_topic_id=SEGMENT_ID,
        settings_topic_id=WRITER,
        default_store_id=STORE_ID,
    ),
    StoreRecord(store_id=STORE_ID, plugin="local", uri="file:///srv/store", prefix="kafka/prod"),
    TopicRecord(
        topic_id=TOPIC_ID,
        name="orders",
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=15_552_000_000,
        retention_bytes=-1,
        local_retention_ms=3_600_000,
        local_retention_bytes=-2,
        originals={"retention.ms": "15552000000", "retention.bytes": None},
        extra={"from_the_future": {"a": [1, "ü"]}},
    ),
    StartRecord(partition=PARTITION, remote_log_start_offset=1_234, cause="enable"),
    TrimRecord(partition=PARTITION, bound=2_000, planned_epoch=7),
    HolesRecord(partition=PARTITION, holes=(Hole(start=2_000, end=2_500, cause="retention"),)),
    DivergenceRecord(partition=PARTITION, action="adopt", epoch=7, offset=1_500, cause="operator"),
    HistoryRecord(
        partition=PARTITION,
        frozen="remote data ends at 2000, beyond the log's end 1600",
        lineage=Lineage(
            (EpochEntry(epoch=5, start_offset=0), EpochEntry(epoch=7, start_offset=1_500))
        ),
    ),
    ServiceRecord(
        node_id=2,
        listen={"proxy": "0.0.0.0:9092", "grpc": "127.0.0.1:9500", "http": "127.0.0.1:9501"},
        advertised={"proxy": "kafka-2:9092", "grpc": "kafka-2:9500", "http": "kafka-2:9501"},
        version="0.1.0",
    ),
    ReaderRecord(grpc_address="reads-1:9500", http_address="reads-1:9501", version="0.1.0"),
    FreezeRecord(topic_id=None, stopped=("trim", "delete", "sweep"), by="ada", why="audit"),
    FreezeRecord(topic_id=TOPIC_ID, stopped=("delete",), by="ada", why="legal hold"),
    TopicRecord(
        topic_id=SEGMENT_ID,
        name="orders",
        mode="copy",
        state="enabled",
        trim=False,
        retention_ms=86_400_000,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
        enforced=TotalRetention(retention_ms=604_800_000, retention_bytes=-1),
    ),
    TopicRecord(
        topic_id=STORE_ID,
        name="orders",
        mode="tier",
        state="deleting",
        trim=True,
        retention_ms=86_400_000,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
        deletion_cause="gone",
    ),
    TopicRecord(
        topic_id=WRITER,
        name="logs",
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
        offload=OffloadThresholds(
            copy_lag_ms=3_600_000, copy_lag_bytes=-1, deletion_lag_ms=14_400_000
        ),
    ),
    TopicRecord(
        topic_id=GIVEN_ID,
        name="clicks",
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=3_600_000,
        local_retention_bytes=-2,
        originals={"retention.ms": None},
        given_back=GivenBack(
            limits={"retention.bytes": "1073741824"},
            since_ms=1_763_000_000_200,
            ended_ms=1_763_000_000_300,
            former_limits={"retention.bytes": "2147483648"},
        ),
    ),
    ServiceRecord(
        node_id=3,
        listen={},
        advertised={},
        version="0.1.0",
        give_back={GIVEN_ID: 1_073_741_824},
    ),
    DeletionRecord(
        topic_id=SEGMENT_ID,
        what="retention",
        by="ada",
        delay_ms=86_400_000,
        decided_ms=1_763_000_000_100,
        extra={"from_the_future": 1},
    ),
    DiscardRecord(
        partition=PARTITION,
        by="ada",
        why="5 of 5 finished segments are outside the leader's lineage",
        epoch=7,
        last_epoch=-1,
        offset=0,
        delay_ms=86_400_000,
        decided_ms=1_763_000_000_100,
    ),
    DiscardRecord(
        partition=PartitionKey(TOPIC_ID, 4),
        by="ada",
        why="5 of 5 finished segments are outside the leader's lineage",
        epoch=7,
        last_epoch=6,
        offset=120,
        delay_ms=0,
        decided_ms=1_763_000_000_100,
        former_start=160,
        former_start_epoch=6,
    ),
    CopyLimitRecord(
        node_id=None, bytes_per_second=67_108_864, by="ada", decided_ms=1_763_000_000_100
    ),
    CopyLimitRecord(node_id=4, bytes_per_second=1_048_576, by="ada", decided_ms=1_763_000_000_100),
)


_RAW_KEY = "8c5f2cefdb7d4ab1bf3cdaa5c2fedb0000000003"
LATER = {
    f"later:partition-key:{_RAW_KEY}": "api key 7, version 0",
    f"later:segment-key:{_RAW_KEY}000102030405060708090a0b0c0d0e0f": "api key 0, version 1",
    f"later:other-key:{_RAW_KEY}2a": "api key 300, version 3",
}
"""Values that this version does not write, by their keys: each begins as every value will."""


def golden(name: str) -> dict[str, str]:
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_every_golden_line_is_tested() -> None:
    assert set(golden("ledger.txt")) == {
        "key",
        "partition-key",
        *VALUES,
        *DELETIONS,
        *_header_names(),
        *LATER,
    }
    assert set(golden("settings.txt")) == {record.key for record in RECORDS}


def _header_names() -> set[str]:
    names = [name for name, _ in HEADERS.encode()]
    return {*names, *(f"tombstone:{name}" for name in names)}


def test_ledger_key() -> None:
    key = LedgerKey(partition=PARTITION, segment_id=SEGMENT_ID)
    assert key.encode().hex() == golden("ledger.txt")["key"]
    whole = LedgerKey(partition=PARTITION, segment_id=None)
    assert whole.encode().hex() == golden("ledger.txt")["partition-key"]


@pytest.mark.parametrize("name", VALUES)
def test_ledger_value(name: str) -> None:
    value = bytes.fromhex(golden("ledger.txt")[name])
    assert encode_value(VALUES[name]) == value
    assert decode_value(value) == VALUES[name]


@pytest.mark.parametrize("name", DELETIONS)
def test_ledger_partition_delete(name: str) -> None:
    value = bytes.fromhex(golden("ledger.txt")[name])
    assert encode_partition_delete(DELETIONS[name]) == value
    assert decode_partition_delete(value) == DELETIONS[name]


@pytest.mark.parametrize(("prefix", "headers"), [("", HEADERS), ("tombstone:", TOMBSTONE_HEADERS)])
def test_ledger_headers(prefix: str, headers: RecordHeaders) -> None:
    lines = golden("ledger.txt")
    found = [(name, bytes.fromhex(lines[prefix + name])) for name, _ in headers.encode()]
    assert headers.encode() == found
    assert RecordHeaders.decode(found) == headers


def test_ledger_tombstone() -> None:
    lines = golden("ledger.txt")
    names = [name for name, _ in TOMBSTONE_HEADERS.encode()]
    read = decode_record(
        key=bytes.fromhex(lines["key"]),
        value=None,
        headers=[(name, bytes.fromhex(lines["tombstone:" + name])) for name in names],
        offset=9,
        timestamp_ms=1,
    )
    assert isinstance(read, LedgerRecord) and read.state is None
    assert read.headers == TOMBSTONE_HEADERS


@pytest.mark.parametrize("name", LATER)
def test_a_ledger_record_of_a_later_version_names_its_partition_and_kind(name: str) -> None:
    key = bytes.fromhex(name.rpartition(":")[2])
    read = decode_record(
        key=key,
        value=bytes.fromhex(golden("ledger.txt")[name]),
        headers=HEADERS.encode(),
        offset=9,
        timestamp_ms=1,
    )
    assert read == LaterRecord(partition=PARTITION, key=key, kind=LATER[name], offset=9)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.key)
def test_settings_records(record: SettingsRecord) -> None:
    value = golden("settings.txt")[record.key].encode()
    assert encode_settings_record(record, STAMP) == (record.key.encode(), value)
    assert decode_settings_record(record.key.encode(), value) == (record, STAMP)
