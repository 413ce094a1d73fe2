"""The audit log: one line for each deletion, on disk before the ledger forgets the segment."""

import json
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rlm.tasks.audit_log import AuditLog
from rlmm.settings_records import TopicRecord, TotalRetention
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION, metadata
from tests.builders.threads import THREADS

SEGMENT = metadata(1, 0, 100, {0: 0})


def audit_at(path: Path) -> AuditLog:
    return AuditLog(path, threads=THREADS, clock=ManualClock(), node_id=7)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_each_deleted_segment_has_a_line_with_all_that_was_known(tmp_path: Path) -> None:
    path = tmp_path / "state" / "audit.log"
    audit = audit_at(path)
    total = TotalRetention(retention_ms=5, retention_bytes=-1)
    await audit.segments_deleted([SEGMENT], cause="retention", retention=total)
    await audit.segments_deleted([SEGMENT, metadata(2, 100, 200, {0: 100})], cause="superseded")
    found = lines(path)
    assert [line["start_offset"] for line in found] == [0, 0, 100]
    assert found[0] == {
        "time_ms": ManualClock().now_ms(),
        "event": "segment_deleted",
        "node_id": 7,
        "cause": "retention",
        "topic": PARTITION.topic,
        "topic_id": str(PARTITION.topic_id),
        "partition": 0,
        "segment_id": str(SEGMENT.segment_id.id),
        "start_offset": 0,
        "end_offset": 99,
        "size_bytes": 1,
        "max_timestamp_ms": 0,
        "retention_ms": 5,
        "retention_bytes": -1,
    }
    assert "retention_ms" not in found[1]


async def test_a_raise_has_a_line_with_both_offsets(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    await audit_at(path).start_raised(
        PARTITION, before=10, remote_log_start_offset=20, cause="retention"
    )
    (line,) = lines(path)
    assert line["event"] == "remote_log_start_raised"
    assert (line["before"], line["remote_log_start_offset"]) == (10, 20)


async def test_a_file_that_was_renamed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = audit_at(path)
    await audit.segments_deleted([SEGMENT], cause="retention")
    path.rename(tmp_path / "audit.log.1")
    await audit.segments_deleted([SEGMENT], cause="retention")
    assert len(lines(path)) == 1


async def test_a_line_after_one_that_a_full_disk_cut_off_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"time_ms": 1, "event": "segm', encoding="utf-8")
    await audit_at(path).segments_deleted([SEGMENT], cause="retention")
    await audit_at(path).segments_deleted([SEGMENT], cause="retention")
    cut, *whole = path.read_text(encoding="utf-8").splitlines()
    assert cut.endswith("segm")
    assert [json.loads(line)["start_offset"] for line in whole] == [0, 0]


async def test_a_line_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file" / "audit.log"
    path.parent.write_text("no folder")
    with pytest.raises(Unavailable, match=r"audit\.log cannot be written"):
        await audit_at(path).segments_deleted([SEGMENT], cause="retention")


async def test_an_accepted_retention_has_a_line_with_both_and_who_it_was(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    record = TopicRecord(
        topic_id=PARTITION.topic_id,
        name=PARTITION.topic,
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=9,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
        originals={},
    )
    total = TotalRetention(retention_ms=5, retention_bytes=7)
    await audit_at(path).retention_accepted(record, by="ada", retention=total)
    (line,) = lines(path)
    assert line == {
        "time_ms": ManualClock().now_ms(),
        "event": "retention_accepted",
        "node_id": 7,
        "topic": PARTITION.topic,
        "topic_id": str(PARTITION.topic_id),
        "by": "ada",
        "retention_ms_before": 9,
        "retention_bytes_before": -1,
        "retention_ms": 5,
        "retention_bytes": 7,
    }


async def test_a_command_has_a_line_with_who_what_and_from_where(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    await audit_at(path).command_given(
        command="DisableTopic",
        by="User:ann",
        is_proven=True,
        address="10.0.0.1",
        request={"topic": "orders", "confirm": True},
    )
    assert lines(path) == [
        {
            "time_ms": ManualClock().now_ms(),
            "event": "command",
            "node_id": 7,
            "command": "DisableTopic",
            "by": "User:ann",
            "by_is_proven": True,
            "from": "10.0.0.1",
            "request": {"topic": "orders", "confirm": True},
        }
    ]
