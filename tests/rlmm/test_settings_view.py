"""Which fact counts: monotonic start (H2), older epochs, unknown fields, versions, tombstones."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Corrupt
from rlmm.log_time import RecordTimes
from rlmm.settings_codec import (
    WriterKnowledge,
    decode_settings_record,
    encode_settings_record,
)
from rlmm.settings_records import (
    CopyLimitRecord,
    DeletionRecord,
    FreezeRecord,
    ServiceRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    TopicRecord,
    TrimRecord,
)
from rlmm.settings_view import SettingsView
from tests.rlmm.builders import KEY, TOPIC_ID, uuid


def put(view: SettingsView, offset: int, record: SettingsRecord, epoch: int = 1) -> None:
    stamp = Stamp(node_id=1, leader_epoch=epoch, writer=uuid(1), time_ms=offset)
    key, value = encode_settings_record(record, stamp)
    view.apply(key=key, value=value, offset=offset)


def start(offset: int) -> StartRecord:
    return StartRecord(partition=KEY, remote_log_start_offset=offset, cause="test")


def topic(**changes: Any) -> TopicRecord:
    values: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "name": "orders",
        "mode": "copy",
        "state": "enabled",
        "trim": False,
        "retention_ms": -1,
        "retention_bytes": -1,
        "local_retention_ms": -2,
        "local_retention_bytes": -2,
    }
    return TopicRecord(**(values | changes))


def test_h02_a_lower_start_is_never_adopted_and_the_higher_one_is_asserted_again() -> None:
    view = SettingsView()
    assert view.remote_log_start(KEY) is None
    put(view, 0, start(100))
    put(view, 1, start(50), epoch=2)
    assert view.remote_log_start(KEY) == 100
    assert [found.record for found in view.reassert] == [start(100)]
    put(view, 2, start(100), epoch=2)
    assert view.reassert == ()


@given(starts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1))
def test_h02_the_start_never_goes_back(starts: list[tuple[int, int]]) -> None:
    view = SettingsView()
    highest = -1
    for offset, (value, epoch) in enumerate(starts):
        put(view, offset, start(value), epoch)
        seen = view.remote_log_start(KEY)
        assert seen is not None
        assert seen >= highest
        highest = seen


def test_a_record_of_an_older_leader_epoch_is_not_adopted() -> None:
    view = SettingsView()
    put(view, 0, TrimRecord(partition=KEY, bound=10, planned_epoch=5), epoch=5)
    put(view, 1, TrimRecord(partition=KEY, bound=99, planned_epoch=4), epoch=4)
    adopted = view.trim(KEY)
    assert adopted is not None
    assert adopted.bound == 10
    assert len(view.reassert) == 1
    assert view.objection(TrimRecord(partition=KEY, bound=11, planned_epoch=4), 4)


def test_an_unknown_version_is_a_problem_until_the_key_is_written_again() -> None:
    view = SettingsView()
    put(view, 0, start(5))
    view.apply(key=start(5).key.encode(), value=b'{"v":2,"kind":"start"}', offset=1)
    assert view.problem is not None
    assert "offset 1" in view.problem
    assert view.remote_log_start(KEY) == 5
    put(view, 2, start(6))
    assert view.problem is None


def test_h02_nobody_writes_over_what_cannot_be_read_but_heartbeats() -> None:
    view = SettingsView()
    beat = ServiceRecord(node_id=1, listen={}, advertised={}, version="1")
    put(view, 0, start(5))
    unread: tuple[SettingsRecord, ...] = (start(5), beat)
    for offset, record in enumerate(unread, start=1):
        view.apply(key=record.key.encode(), value=b'{"v":2}', offset=offset)
    why = view.objection(start(6), 1)
    assert why is not None
    assert "cannot be read: settings offset 1" in why
    knew = WriterKnowledge(seen=3, leader_epoch=1)
    assert view.objection_to_removal(start(5).key, knew) == why
    assert view.objection(beat, -1) is None
    other = TrimRecord(partition=KEY, bound=10, planned_epoch=1)
    assert view.objection(other, 1) is None
    view.apply(key=start(5).key.encode(), value=None, offset=3)
    assert view.objection(start(6), 1) is None
    assert view.objection_to_removal(start(5).key, knew) is None


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        (f"start/{KEY}".encode(), True),
        (f"trim/{KEY}".encode(), True),
        (f"holes/{KEY}".encode(), True),
        (f"topic/{TOPIC_ID}".encode(), True),
        (b"\xff\xfe", True),
        (b"", True),
        (f"start/{TOPIC_ID}/77".encode(), False),
        (f"topic/{uuid(9)}".encode(), False),
        (b"reader/gone", False),
    ],
)
def test_h02_only_what_may_show_its_start_keeps_a_partition_without_one(
    key: bytes, counts: bool
) -> None:
    view = SettingsView()
    view.apply(key=key, value=b'{"v":2}', offset=0)
    assert view.problem is not None
    assert (view.problem_of_start(KEY) == view.problem) is counts


def test_a_kind_of_the_future_is_no_problem() -> None:
    view = SettingsView()
    value = {"v": 1, "kind": "lease", "node_id": 1, "leader_epoch": -1, "time_ms": 1}
    document = json.dumps({**value, "writer": str(uuid(1))}).encode()
    view.apply(key=b"lease/x", value=document, offset=0)
    assert view.problem is None


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": None},
        {"node_id": "one"},
        {"node_id": True},
        {"writer": "short"},
        {"trim": "maybe"},
        {"mode": "both"},
        {"retention_ms": 1.5},
        {"enforced_retention_ms": 1},
        {"enforced_retention_ms": 1, "enforced_retention_bytes": None},
        {"originals": []},
        {"name": None},
    ],
)
def test_a_malformed_field_is_corrupt(change: dict[str, Any]) -> None:
    stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=0)
    key, value = encode_settings_record(topic(), stamp)
    with pytest.raises(Corrupt, match=f"topic/{TOPIC_ID}"):
        decode_settings_record(key, json.dumps(json.loads(value) | change).encode())


@pytest.mark.parametrize("name", ["v", "kind", "writer", "time_ms", "name", "originals"])
def test_a_missing_field_is_corrupt(name: str) -> None:
    stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=0)
    key, value = encode_settings_record(topic(), stamp)
    document = json.loads(value)
    del document[name]
    with pytest.raises(Corrupt, match=name):
        decode_settings_record(key, json.dumps(document).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b"\xff", b"null", b"1"])
def test_no_json_object_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_settings_record(b"cluster", value)


def test_a_record_under_another_key_is_corrupt() -> None:
    stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=0)
    _, value = encode_settings_record(start(1), stamp)
    for key in (b"trim/x/1", b"start/x/1", f"start/{TOPIC_ID}/01".encode(), b"start"):
        with pytest.raises(Corrupt):
            decode_settings_record(key, value)


def test_unknown_fields_are_kept_and_written_again() -> None:
    stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=0)
    key, value = encode_settings_record(topic(extra={"later": {"x": [1]}}), stamp)
    decoded = decode_settings_record(key, value)
    assert decoded is not None
    assert decoded[0].extra == {"later": {"x": [1]}}
    assert encode_settings_record(*decoded) == (key, value)


def test_freeze_holds_for_all_or_for_one_and_ends_with_a_tombstone() -> None:
    view = SettingsView()
    freeze = FreezeRecord(topic_id=None, stopped=("trim",), by="ada", why="audit")
    put(view, 0, freeze, epoch=-1)
    put(view, 1, FreezeRecord(topic_id=TOPIC_ID, stopped=("delete",), by="ada", why="x"), epoch=-1)
    assert view.stopped_by(TOPIC_ID, "trim") == "ada: audit"
    assert view.stopped_by(TOPIC_ID, "delete") == "ada: x"
    assert not view.stopped_by(uuid(9), "delete")
    view.apply(key=b"freeze", value=None, offset=2)
    assert not view.stopped_by(TOPIC_ID, "trim")


def copy_limit(node_id: int | None, bytes_per_second: int) -> CopyLimitRecord:
    return CopyLimitRecord(
        node_id=node_id, bytes_per_second=bytes_per_second, by="ada", decided_ms=1
    )


def test_a_copy_limit_of_a_node_counts_before_that_for_all() -> None:
    view = SettingsView()
    assert view.copy_limit(4) is None
    put(view, 0, copy_limit(4, 2 << 20), epoch=-1)
    put(view, 1, copy_limit(None, 8 << 20), epoch=-1)
    assert view.copy_limit(4) == copy_limit(4, 2 << 20)
    assert view.copy_limit(5) == copy_limit(None, 8 << 20)
    assert [record.node_id for record in view.copy_limits()] == [None, 4]
    view.apply(key=b"copy-limit/4", value=None, offset=2)
    assert view.copy_limit(4) == copy_limit(None, 8 << 20)
    view.apply(key=b"copy-limit", value=None, offset=3)
    assert view.copy_limit(4) is None


def test_h10_a_late_copy_limit_does_not_replace_a_newer_one() -> None:
    """An operator gave the first command up, whose record lands after the second one's."""
    view = SettingsView()
    put(view, 0, copy_limit(4, 2 << 20), epoch=-1)
    put(view, 1, copy_limit(4, 8 << 20), epoch=-1)
    stamp = Stamp(node_id=1, leader_epoch=-1, writer=uuid(1), time_ms=2)
    key, value = encode_settings_record(copy_limit(4, 4 << 20), stamp)
    view.apply(key=key, value=value, offset=2, headers=WriterKnowledge(seen=1).encode())
    assert view.copy_limit(4) == copy_limit(4, 8 << 20)
    assert [found.record for found in view.reassert] == [copy_limit(4, 8 << 20)]
    view.apply(key=key, value=value, offset=3, headers=WriterKnowledge(seen=3).encode())
    assert view.copy_limit(4) == copy_limit(4, 4 << 20)


@pytest.mark.parametrize("wrong", [0, -1, (1 << 20) - 1, True, "8388608", 1.5e9])
def test_a_copy_limit_that_no_command_writes_is_corrupt(wrong: object) -> None:
    stamp = Stamp(node_id=1, leader_epoch=-1, writer=uuid(1), time_ms=0)
    key, value = encode_settings_record(copy_limit(4, 8 << 20), stamp)
    document = json.dumps({**json.loads(value), "bytes_per_second": wrong})
    view = SettingsView()
    view.apply(key=key, value=value, offset=0)
    view.apply(key=key, value=document.encode(), offset=1)
    assert "copy-limit/4" in str(view.problem)
    assert view.copy_limit(4) == copy_limit(4, 8 << 20)


def test_records_of_different_writers_do_not_touch_each_other() -> None:
    view = SettingsView()
    put(view, 0, topic())
    put(view, 1, start(3))
    put(view, 2, ServiceRecord(node_id=4, listen={}, advertised={"grpc": "a:1"}, version="1"))
    assert [record.name for record in view.topics()] == ["orders"]
    (service, stamp), *rest = view.services()
    assert (service.node_id, stamp.time_ms, rest) == (4, 2, [])
    assert [found.record.key.split("/")[0] for found in view.records()] == [
        "service",
        "start",
        "topic",
    ]


def test_h04_the_epoch_of_a_decision_is_the_records_own_not_the_stamps() -> None:
    view = SettingsView()
    assert view.remote_log_start_epoch(KEY) == -1
    put(view, 0, start(100), epoch=4)
    assert view.remote_log_start_epoch(KEY) == -1
    decided = replace(start(100), decided_epoch=2)
    put(view, 1, decided, epoch=4)
    assert view.remote_log_start_epoch(KEY) == 2
    put(view, 2, replace(start(120), decided_epoch=9), epoch=5)
    assert view.remote_log_start_epoch(KEY) == 5


def test_h04_a_decided_epoch_travels_and_is_not_written_where_it_is_not_known() -> None:
    stamp = Stamp(node_id=1, leader_epoch=4, writer=uuid(1), time_ms=0)
    for record in (start(1), replace(start(1), decided_epoch=0)):
        key, value = encode_settings_record(record, stamp)
        assert decode_settings_record(key, value) == (record, stamp)
    assert b"decided_epoch" not in encode_settings_record(start(1), stamp)[1]


def test_h02_an_epoch_that_was_overruled_once_stays_so() -> None:
    view = SettingsView()
    put(view, 0, TrimRecord(partition=KEY, bound=10, planned_epoch=5), epoch=5)
    for offset in (1, 2):
        put(view, offset, TrimRecord(partition=KEY, bound=99, planned_epoch=4), epoch=4)
        adopted = view.trim(KEY)
        assert adopted is not None
        assert adopted.bound == 10


def test_a_key_that_cannot_be_read_mends_no_other() -> None:
    view = SettingsView()
    view.apply(key=start(5).key.encode(), value=b"{}", offset=0)
    put(view, 1, topic())
    assert "offset 0" in (view.problem or "")
    view.apply(key=start(5).key.encode(), value=None, offset=2)
    assert view.problem is None


DELETION = DeletionRecord(topic_id=TOPIC_ID, what="retention", by="ada", delay_ms=5, decided_ms=1)


def test_h10_a_late_announcement_does_not_replace_a_newer_one() -> None:
    view = SettingsView()
    put(view, 0, DELETION)
    put(view, 1, replace(DELETION, by="grace"))
    stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=2)
    key, value = encode_settings_record(replace(DELETION, by="late"), stamp)
    headers = WriterKnowledge(seen=1).encode()
    view.apply(key=key, value=value, offset=2, headers=headers)
    assert view.deletion(TOPIC_ID) == replace(DELETION, by="grace")
    view.apply(key=key, value=None, offset=3, headers=headers)
    assert view.deletion(TOPIC_ID) is not None
    view.apply(
        key=key, value=None, offset=4, headers=WriterKnowledge(seen=4, leader_epoch=1).encode()
    )
    assert view.deletion(TOPIC_ID) is None


def aged(
    *,
    read_ms: int | None,
    appended_ms: int = 1_000,
    written_ms: int = 1_000,
    last_ms: int = 1_000,
    last_read_ms: int | None = None,
) -> SettingsView:
    """An announcement, and a heartbeat that was appended at `last_ms` and read at once, or at
    another time, after a replay.
    """
    view = SettingsView()
    heartbeat = TrimRecord(partition=KEY, bound=1, planned_epoch=1)
    first = RecordTimes(appended_ms=appended_ms, read_ms=read_ms)
    last = RecordTimes(appended_ms=last_ms, read_ms=last_read_ms or read_ms)
    written: list[tuple[SettingsRecord, int, RecordTimes]] = [
        (DELETION, written_ms, first),
        (heartbeat, last_ms, last),
    ]
    for offset, (record, at_ms, times) in enumerate(written):
        stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=at_ms)
        key, value = encode_settings_record(record, stamp)
        view.apply(key=key, value=value, offset=offset, times=times)
    return view


YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize(
    ("view", "now_ms", "age_ms"),
    [
        (aged(read_ms=None, last_ms=1_700), 1_900, 700),
        (aged(read_ms=None, last_ms=1_700), 1_300, 300),
        (aged(read_ms=40, last_ms=1_700), 1_900, 760),
        (aged(read_ms=40), 1_000 + YEAR_MS, 60),
        (aged(read_ms=40, last_ms=1_000 + YEAR_MS), 1_060, 60),
        (aged(read_ms=None, last_ms=1_000 + YEAR_MS), 1_060, 60),
        (aged(read_ms=None, appended_ms=1_000 - YEAR_MS), 1_060, 60),
        (aged(read_ms=None, last_ms=1_700, written_ms=1_000 + YEAR_MS), 1_900, 0),
        (aged(read_ms=40, last_ms=1_700, written_ms=1_000 + YEAR_MS), 1_900, 760),
        (aged(read_ms=40, appended_ms=1_000 - YEAR_MS, last_ms=1_000 - YEAR_MS // 2), 1_060, 60),
        (aged(read_ms=40, appended_ms=1_000 - YEAR_MS, last_ms=1_000 - YEAR_MS), 1_300, 60),
        (aged(read_ms=40, appended_ms=1_000 - YEAR_MS, last_ms=1_000), 1_300 - YEAR_MS, 60),
        (
            aged(
                read_ms=None, appended_ms=1_000 - YEAR_MS, last_ms=1_700 - YEAR_MS, last_read_ms=90
            ),
            1_800,
            710,
        ),
        (
            aged(read_ms=None, last_ms=1_700, last_read_ms=90, written_ms=1_000 + YEAR_MS),
            1_900,
            710,
        ),
        (aged(read_ms=None, last_ms=1_000 - YEAR_MS, last_read_ms=70), 1_060 - YEAR_MS, 30),
        (
            aged(read_ms=None, last_ms=1_000 + YEAR_MS, written_ms=1_000 - YEAR_MS),
            1_060,
            60,
        ),
        (aged(read_ms=None, last_ms=1_700), 1_700 - YEAR_MS, 0),
    ],
    ids=[
        "a replay knows it by later append times",
        "as far as our own clock confirms them",
        "and by our monotonic clock since the last one",
        "our clock a year ahead",
        "a broker's clock a year ahead",
        "a broker's clock a year ahead, in a replay",
        "a broker's clock was a year behind when it was appended",
        "the writer's clock a year ahead, in a replay",
        "the writer's clock a year ahead, which nobody else says",
        "the brokers' clock a year behind, then half a year",
        "the brokers' clock a year behind, always",
        "a broker's clock was a year behind, and ours is",
        "the brokers' clock a year behind, in a replay that is followed",
        "the writer's clock a year ahead, in a replay that is followed",
        "a replay ages since it is followed",
        "the writer's clock a year behind, and a broker's a year ahead",
        "our clock a year behind",
    ],
)
def test_h16_no_single_clock_makes_a_record_older(
    view: SettingsView, now_ms: int, age_ms: int
) -> None:
    assert view.certain_age_ms(DELETION.key, monotonic_ms=100, now_ms=now_ms) == age_ms


def test_h16_nothing_is_certain_of_a_record_without_times() -> None:
    view = SettingsView()
    assert view.certain_age_ms(DELETION.key, monotonic_ms=10**9, now_ms=10**9) == 0
    put(view, 0, DELETION)
    assert view.certain_age_ms(DELETION.key, monotonic_ms=10**9, now_ms=10**9) == 0
