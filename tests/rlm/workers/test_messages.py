"""Values of the tier as messages and back: every field, every error, neighbouring versions."""

import dataclasses
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.errors import (
    Elsewhere,
    ErrorKind,
    Internal,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
    error_of_kind,
)
from kip405.history import History, HistoryRule
from kip405.ids import Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.plans.client_activity import ClientName, ClientRow, TierBytes
from rlm.plans.client_history import HistoryRules, WindowStart
from rlm.proxy.settings import ProxySettings
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.mirrored import LeaderEpochs, MirroredPartition
from rlm.remote_log.tier import ChangedMeanwhile, TierPartition, TopicRef, Watermarks
from rlm.workers import messages
from rlm.workers.messages import (
    NEWEST_PROTOCOL,
    OLDEST_PROTOCOL,
    addresses_message,
    addresses_of,
    client_message,
    client_of,
    common_protocol,
    error_message,
    error_of,
    records_message,
    records_of,
)
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.worker import WorkerSettings

OFFSETS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**31 - 1)
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
NAME_CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.text(NAME_CHARACTERS, min_size=1, max_size=20)
RUNS = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=4).map(tuple)
WATERMARKS = st.builds(
    Watermarks, high_watermark=OFFSETS, last_stable_offset=OFFSETS, log_start_offset=OFFSETS
)


def _lineage(starts: list[int]) -> Lineage:
    return Lineage(
        tuple(
            EpochEntry(epoch=epoch, start_offset=start)
            for epoch, start in enumerate(sorted(starts))
        )
    )


LINEAGES = st.lists(st.integers(0, 2**63 - 1), max_size=5, unique=True).map(_lineage)
PARTITIONS = st.builds(
    TierPartition,
    topic_id=UUIDS,
    topic=NAMES,
    partition=st.integers(0, 2**31 - 1),
    remote_log_start_offset=OFFSETS,
    remote_next_offset=OFFSETS,
    watermarks=st.none() | WATERMARKS,
    led_here=st.booleans(),
    leader_epoch=EPOCHS,
    frozen=st.booleans(),
    unsettled_next_offset=OFFSETS,
    empty=RUNS,
    window_starts=st.lists(st.builds(WindowStart, OFFSETS, OFFSETS), max_size=3).map(tuple),
)
LEADER_EPOCHS = st.builds(
    LeaderEpochs, lineage=LINEAGES, log_end_offset=OFFSETS, remote_log_start_offset=OFFSETS
)
MIRRORED = st.builds(
    MirroredPartition,
    view=PARTITIONS,
    epochs=st.none() | LEADER_EPOCHS,
    refusal=st.none() | NAMES,
)
READS = st.builds(
    RemoteRead,
    topic_id=UUIDS,
    partition=st.integers(0, 2**31 - 1),
    offset=OFFSETS,
    upper_offset=OFFSETS,
    max_bytes=st.integers(0, 2**40),
    at_least_one=st.booleans(),
    read_committed=st.booleans(),
)
FOUND = st.builds(TimestampedOffset, offset=OFFSETS, timestamp_ms=OFFSETS, leader_epoch=EPOCHS)


def sent(message: Any) -> Any:
    """As the other side receives it."""
    return type(message).FromString(message.SerializeToString())


@given(MIRRORED)
def test_views_there_and_back(mirrored: MirroredPartition) -> None:
    assert messages.view_of(sent(messages.view_message(mirrored))) == mirrored


def test_h24_a_refusal_that_is_no_unicode_is_sent_escaped() -> None:
    """As a problem of a file whose path is none."""
    mirrored = MirroredPartition(view=FULL_VIEW, epochs=None, refusal="/srv/\udcff is full")
    found = messages.view_of(sent(messages.view_message(mirrored)))
    assert found == replace(mirrored, refusal="/srv/\\udcff is full")


@given(READS)
def test_reads_there_and_back(request: RemoteRead) -> None:
    assert messages.read_of(sent(messages.read_message(request))) == request


@given(WATERMARKS)
def test_watermarks_there_and_back(watermarks: Watermarks) -> None:
    assert messages.marks_of(sent(messages.marks_message(watermarks))) == watermarks


@given(st.none() | FOUND)
def test_timestamped_offsets_there_and_back(found: TimestampedOffset | None) -> None:
    assert messages.timestamp_of(sent(messages.timestamp_message(found))) == found


@given(NAMES.map(lambda name: TopicRef(name=name)) | UUIDS.map(lambda one: TopicRef(topic_id=one)))
def test_topics_there_and_back(topic: TopicRef) -> None:
    assert messages.topic_of(sent(messages.topic_message(topic))) == topic


@given(st.lists(st.binary(max_size=9), max_size=3), OFFSETS, RUNS, st.booleans(), RUNS)
def test_records_there_and_back(
    records: list[bytes],
    next_offset: int,
    aborted: tuple[tuple[int, int], ...],
    exhausted: bool,
    missing: tuple[tuple[int, int], ...],
) -> None:
    raw = b"".join(records)
    value = RemoteRecords(
        records=tuple(records),
        size_bytes=len(raw),
        next_offset=next_offset,
        aborted=aborted,
        exhausted=exhausted,
        missing=missing,
    )
    found = records_of(sent(records_message(value)), (memoryview(raw),))
    assert b"".join(found.records) == raw
    assert replace(found, records=value.records) == value


# A field that is added to a value and not to its message makes these fail: each value here differs
# from the default of each of its fields, which are found by reflection.


FULL_VIEW = TierPartition(
    topic_id=Uuid(b"0123456789abcdef"),
    topic="archive",
    partition=1,
    remote_log_start_offset=2,
    remote_next_offset=3,
    watermarks=Watermarks(high_watermark=4, last_stable_offset=5, log_start_offset=6),
    led_here=True,
    leader_epoch=7,
    frozen=True,
    unsettled_next_offset=8,
    empty=((9, 10),),
    window_starts=(WindowStart(86_400_000, 11),),
)
FULL_EPOCHS = LeaderEpochs(
    lineage=_lineage([11, 12]), log_end_offset=13, remote_log_start_offset=14
)
FULL_READ = RemoteRead(
    topic_id=Uuid(b"0123456789abcdef"),
    partition=1,
    offset=2,
    upper_offset=3,
    max_bytes=4,
    at_least_one=True,
    read_committed=True,
    parent="00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
)
FULL_RECORDS = RemoteRecords(
    records=(b"abc",),
    size_bytes=3,
    next_offset=1,
    aborted=((2, 3),),
    exhausted=True,
    missing=((4, 5),),
)
FULL_FOUND = TimestampedOffset(offset=1, timestamp_ms=2, leader_epoch=3)


def _mirrored(value: MirroredPartition) -> MirroredPartition:
    return messages.view_of(sent(messages.view_message(value)))


def _records(value: RemoteRecords) -> RemoteRecords:
    found = records_of(sent(records_message(value)), tuple(map(memoryview, value.records)))
    return replace(found, records=tuple(bytes(one) for one in found.records))


@pytest.mark.parametrize(
    ("full", "carried"),
    [
        (MirroredPartition(view=FULL_VIEW, epochs=FULL_EPOCHS, refusal="frozen"), _mirrored),
        (
            FULL_VIEW,
            lambda one: _mirrored(MirroredPartition(view=one, epochs=None, refusal="no")).view,
        ),
        (
            FULL_EPOCHS,
            lambda one: (
                _mirrored(MirroredPartition(view=FULL_VIEW, epochs=one, refusal="no")).epochs
            ),
        ),
        (FULL_VIEW.watermarks, lambda one: messages.marks_of(sent(messages.marks_message(one)))),
        (FULL_READ, lambda one: messages.read_of(sent(messages.read_message(one)))),
        (FULL_RECORDS, _records),
        (
            FULL_FOUND,
            lambda one: messages.timestamp_of(sent(messages.timestamp_message(one))),
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_field_of_a_value_is_carried(full: Any, carried: Any) -> None:
    for field in fields(full):
        value = getattr(full, field.name)
        assert value not in (0, False, None, "", ()), f"{field.name} shows nothing"
        if field.default is not dataclasses.MISSING:
            assert value != field.default, f"{field.name} has its default: give it a value above"
    assert carried(full) == full


@pytest.mark.parametrize("kind", ErrorKind)
def test_errors_of_every_kind_there_and_back(kind: ErrorKind) -> None:
    found = error_of(sent(error_message(error_of_kind(kind, "archive-0: why"))))
    assert type(found) is type(error_of_kind(kind, ""))
    assert str(found) == "archive-0: why"


@pytest.mark.parametrize(("start", "high"), [(None, None), (0, 0), (5, None), (None, 9), (3, 8)])
def test_what_was_asked_beyond_the_log_keeps_its_offsets(
    start: int | None, high: int | None
) -> None:
    error = OffsetOutOfRange("beyond", log_start_offset=start, high_watermark=high)
    found = error_of(sent(error_message(error)))
    assert isinstance(found, OffsetOutOfRange)
    assert (str(found), found.log_start_offset, found.high_watermark) == ("beyond", start, high)


def test_what_was_deleted_meanwhile_is_still_distinguished() -> None:
    found = error_of(sent(error_message(ChangedMeanwhile("the remote log starts at 7"))))
    assert isinstance(found, ChangedMeanwhile)
    assert str(found) == "the remote log starts at 7"


def test_an_error_of_another_service_keeps_its_kind() -> None:
    found = error_of(sent(error_message(Elsewhere("led elsewhere", "b:1"))))
    assert (found.kind, found.retriable) == (ErrorKind.FENCED, False)


def test_a_bug_of_the_core_is_internal_and_says_what_it_was() -> None:
    found = error_of(sent(error_message(KeyError("offset"))))
    assert isinstance(found, Internal)
    assert "KeyError('offset')" in str(found)


def test_a_message_that_is_no_unicode_text_is_an_error_like_any_other() -> None:
    """As with the path of a file in an error of the operating system."""
    for error in (Unavailable("file \udcff"), OSError("file \udcff")):
        assert "file" in str(error_of(sent(error_message(error))))


def test_a_kind_that_only_a_later_version_knows_may_pass() -> None:
    found = error_of(pb.CallError(kind="TOO_COLD", message="wait", name="also_unknown"))
    assert type(found) is Unavailable
    assert found.retriable


def test_a_name_that_only_a_later_version_knows_leaves_the_kind() -> None:
    found: RemoteStorageError = error_of(pb.CallError(kind="CORRUPT", message="m", name="worse"))
    assert found.kind is ErrorKind.CORRUPT


@pytest.mark.parametrize(
    ("oldest", "newest", "common"),
    [
        (OLDEST_PROTOCOL, NEWEST_PROTOCOL, NEWEST_PROTOCOL),
        (OLDEST_PROTOCOL, NEWEST_PROTOCOL + 1, NEWEST_PROTOCOL),
        (NEWEST_PROTOCOL, NEWEST_PROTOCOL + 5, NEWEST_PROTOCOL),
        (NEWEST_PROTOCOL + 1, NEWEST_PROTOCOL + 5, None),
        (0, OLDEST_PROTOCOL - 1, None),
        (0, OLDEST_PROTOCOL, OLDEST_PROTOCOL),
    ],
)
def test_the_newest_protocol_of_both(oldest: int, newest: int, common: int | None) -> None:
    assert common_protocol(oldest, newest) == common


SETTINGS = WorkerSettings(
    worker=3,
    core_socket="core.sock",
    records_memory_bytes=5,
    log_level="info",
    log_format="json",
    proxy=ProxySettings(
        listen_host="a",
        listen_port=1,
        upstream_host="b",
        upstream_port=2,
        max_idle_ms=77,
        history=HistoryRules(History(9), (HistoryRule(history=History(0), client_ids="x"),)),
    ),
)


def test_settings_of_a_worker_there_and_back() -> None:
    assert SETTINGS.line().count(b"\n") == 1
    assert WorkerSettings.of(SETTINGS.line()) == SETTINGS


def test_a_worker_begins_with_the_ids_of_our_topics_that_are_remembered() -> None:
    ids = ("00ff" * 8, "0a0b" * 8)
    known = replace(SETTINGS, own_topic_ids=ids)
    assert WorkerSettings.of(known.line()) == known
    content = json.loads(known.line())
    del content["own_topic_ids"]  # of an earlier supervisor
    assert WorkerSettings.of(json.dumps(content).encode()) == SETTINGS


def test_a_worker_begins_with_the_addresses_that_are_remembered() -> None:
    proxies = {"1": NodeAddress(host="p", port=5), "12": NodeAddress(host="::1", port=6)}
    found = WorkerSettings.of(replace(SETTINGS, proxies=proxies).line())
    assert found.addresses() == NodeAddresses(
        replaced={1: proxies["1"], 12: proxies["12"]}, keeps_others=False
    )
    assert SETTINGS.addresses() is None
    content = json.loads(SETTINGS.line())
    del content["proxies"]  # of an earlier supervisor
    assert WorkerSettings.of(json.dumps(content).encode()) == SETTINGS
    content["proxies"] = {"1": {"host": "p", "port": 5, "later": 1}}
    assert WorkerSettings.of(json.dumps(content).encode()).proxies == {"1": proxies["1"]}


@given(
    st.dictionaries(
        st.integers(0, 2**31 - 1), st.builds(NodeAddress, host=NAMES, port=st.integers(1, 65_535))
    ),
    st.booleans(),
)
def test_addresses_there_and_back(replaced: dict[int, NodeAddress], keeps_others: bool) -> None:
    nodes = NodeAddresses(replaced=replaced, keeps_others=keeps_others)
    raw = addresses_message(nodes).SerializeToString()
    assert addresses_of(pb.NodeAddresses.FromString(raw)) == nodes


CLIENTS = st.builds(
    ClientRow,
    st.builds(ClientName, *[st.text(NAME_CHARACTERS, max_size=9)] * 3),
    connections=st.integers(0, 2**31 - 1),
    software=st.lists(NAMES, max_size=3).map(dict.fromkeys),
    groups=st.lists(NAMES, max_size=3).map(dict.fromkeys),
    topics=st.dictionaries(
        NAMES, st.builds(TierBytes, st.integers(0, 2**62), st.integers(0, 2**62)), max_size=3
    ),
    throttled_ms=st.integers(0, 2**62),
)


@given(CLIENTS)
def test_clients_there_and_back(row: ClientRow) -> None:
    raw = client_message(row).SerializeToString()
    assert client_of(pb.ClientRow.FromString(raw)) == row


def test_settings_of_a_later_version_are_left_out_and_missing_ones_have_their_defaults() -> None:
    content = json.loads(SETTINGS.line())
    content["later"] = {"a": 1}
    content["proxy"]["later"] = [2]
    del content["proxy"]["max_idle_ms"], content["proxy"]["history"]
    found = WorkerSettings.of(json.dumps(content).encode())
    default = ProxySettings(listen_host="a", listen_port=1, upstream_host="b", upstream_port=2)
    assert found == replace(SETTINGS, proxy=default)
