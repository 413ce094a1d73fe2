"""What the broker deleted uncopied becomes a hole on record, on positive evidence alone (H15)."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import RemoteStorageManager
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.plans.holes import BY_ANYBODY, BY_RETENTION, GIVEN_BACK
from rlm.plans.problems import ProblemKind
from rlm.plans.verification import IssueKind
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.hole_watch import HoleWatch
from rlmm.ledger import Hole
from rlmm.settings_records import GivenBack, StoreRecord, TopicRecord, TrimRecord
from tests.builders.ledger import PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore
from tests.rlm.tasks.test_unlisted_segments import verified

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
LIST_AGAIN_MS = 600_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """[0, 300) local in three closed segments, nothing copied; the broker's retention acts."""
    made = Rig(tmp_path)
    made.enable(mode="copy", trim=False)
    made.broker.config["retention.ms"] = "5000"
    made.write_log(0, 100, 200, 300, end=350)
    made.remote_start(0)
    return made


def delete_up_to(rig: Rig, offset: int) -> None:
    """The broker's retention does."""
    rig.broker.log_start_offset = offset
    for base in range(0, offset, 100):
        for path in rig.disk.path.glob(f"{base:020d}.*"):
            path.unlink()


def take_store_away(rig: Rig) -> RemoteStorageManager:
    return rig.shelf.stores.pop(STORE_ID)


async def run(rig: Rig, watch: HoleWatch | None = None) -> None:
    await (watch or rig.hole_watch).run_on(await rig.snapshots.take(rig.led))


def holes(rig: Rig) -> list[tuple[int, int, str]]:
    return [(one.start, one.end, one.cause) for one in rig.settings.view.holes(PARTITION.key)]


def found(rig: Rig, watch: HoleWatch | None = None) -> list[str]:
    problems = tuple((watch or rig.hole_watch).findings([rig.led]))
    assert {one.kind for one in problems} <= {ProblemKind.OFFSETS_MISSING}
    return [one.text for one in problems]


async def test_h15_what_was_seen_uncopied_and_is_deleted_is_a_hole_without_any_store(
    rig: Rig,
) -> None:
    take_store_away(rig)
    await run(rig)
    assert holes(rig) == []
    delete_up_to(rig, 200)
    await run(rig)
    assert holes(rig) == [(0, 200, BY_RETENTION)]
    assert found(rig) == []
    delete_up_to(rig, 300)
    await run(rig)
    assert holes(rig) == [(0, 300, BY_RETENTION)]


async def test_h15_a_hole_is_a_note_of_verify_and_a_gap_a_finding(rig: Rig) -> None:
    await run(rig)
    delete_up_to(rig, 200)
    issues, report = await verified(rig)
    assert ([one.kind for one in issues], report.findings) == ([IssueKind.GAP], 1)
    await run(rig)
    issues, report = await verified(rig)
    assert ([one.kind for one in issues], report.findings) == ([IssueKind.HOLE], 0)
    assert "own retention" in issues[0].text


async def test_h15_only_what_was_not_copied_is_a_hole(rig: Rig) -> None:
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    await run(rig)
    delete_up_to(rig, 300)
    await run(rig)
    assert holes(rig) == [(100, 300, BY_RETENTION)]


async def test_h15_a_deletion_by_somebody_else_has_its_own_cause(rig: Rig) -> None:
    rig.enable()
    rig.broker.config["retention.ms"] = "-1"
    await run(rig)
    delete_up_to(rig, 100)
    await run(rig)
    assert holes(rig) == [(0, 100, BY_ANYBODY)]


async def test_h15_what_nobody_saw_is_a_hole_once_every_store_was_listed(rig: Rig) -> None:
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    delete_up_to(rig, 300)
    store = take_store_away(rig)
    await run(rig)
    assert holes(rig) == []
    [text] = found(rig)
    assert "offsets 100 to 300" in text
    rig.shelf.stores[STORE_ID] = store
    await run(rig)
    assert holes(rig) == []
    rig.clock.advance(LIST_AGAIN_MS)
    await run(rig)
    assert holes(rig) == [(100, 300, BY_RETENTION)]
    assert found(rig) == []


@pytest.mark.parametrize("is_configured", [True, False])
async def test_h15_a_store_that_is_not_known_here_was_not_listed(
    rig: Rig, is_configured: bool
) -> None:
    """It was used once, and is not configured any more, or its plugin did not start yet: a copy
    that the ledger has lost may lie there.
    """
    other = Uuid(b"\x52" * 16)
    rig.settings.write(StoreRecord(store_id=other, plugin="s3", uri="s3://b", prefix=""))
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    delete_up_to(rig, 300)
    await run(rig)
    assert holes(rig) == []
    [text] = found(rig)
    assert f"the objects in store {other} were not listed" in text
    if is_configured:
        rig.shelf.stores[other] = MemoryStore(CLUSTER_ID, other)
        rig.clock.advance(LIST_AGAIN_MS)
        await run(rig)
        assert holes(rig) == [(100, 300, BY_RETENTION)]


async def test_h06_a_copy_that_the_ledger_lost_is_no_hole(rig: Rig) -> None:
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=200))
    await rig.copy.run(rig.led)
    rig.ledger.lose_tail(2)
    delete_up_to(rig, 300)
    await run(rig)
    assert holes(rig) == []
    [text] = found(rig)
    assert "offsets 200 to 300" in text
    assert "that the ledger does not list" in text


async def test_h06_a_gap_below_our_own_trim_is_never_a_hole(rig: Rig) -> None:
    await run(rig)
    rig.settings.write(TrimRecord(partition=PARTITION.key, bound=200, planned_epoch=0), epoch=0)
    delete_up_to(rig, 300)
    await run(rig)
    assert holes(rig) == [(200, 300, BY_RETENTION)]


async def test_h15_an_attempt_that_may_be_adopted_is_settled_first(rig: Rig) -> None:
    await run(rig)
    attempt = metadata(7, 100, 200, {0: 0}, STARTED)
    rig.ledger.write(attempt)
    delete_up_to(rig, 200)
    await run(rig)
    assert holes(rig) == [(0, 100, BY_RETENTION)]
    assert rig.ledger.view.entries[attempt.segment_id.id].state is STARTED
    rig.ledger.write(None, segment_id=attempt.segment_id)
    take_store_away(rig)
    await run(rig)
    assert holes(rig) == [(0, 200, BY_RETENTION)]


@pytest.mark.parametrize("doubt", ["ledger", "settings", "epoch", "disabled"])
async def test_h15_a_snapshot_that_proves_nothing_records_nothing(rig: Rig, doubt: str) -> None:
    await run(rig)
    take_store_away(rig)
    delete_up_to(rig, 200)
    if doubt == "ledger":
        rig.ledger.problem = "it shrank"
    elif doubt == "settings":
        rig.settings.problem = "it shrank"
    elif doubt == "epoch":
        rig.begin_epoch(1, 350)
    else:
        rig.settings.write(_kept(rig), epoch=0)
    await run(rig)
    assert holes(rig) == []


def _kept(rig: Rig) -> TopicRecord:
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    return replace(record, state="kept")


async def test_h15_a_hole_on_record_is_not_recorded_twice(rig: Rig) -> None:
    await rig.hole_records.add(PARTITION.key, [Hole(start=0, end=150, cause="op")], 0)
    await run(rig)
    delete_up_to(rig, 200)
    await run(rig)
    assert holes(rig) == [(0, 150, "op"), (150, 200, BY_RETENTION)]


async def test_another_leader_forgets_what_it_saw(rig: Rig) -> None:
    await run(rig)
    take_store_away(rig)
    rig.hole_watch.forget(PARTITION.key)
    delete_up_to(rig, 200)
    await run(rig)
    assert holes(rig) == []
    assert len(found(rig)) == 1


async def test_h18_what_goes_while_retention_is_given_back_is_a_hole_and_no_foreign_move(
    rig: Rig,
) -> None:
    """Nor is it one when the retention was taken over again, and nothing was trimmed since (H1)."""
    rig.enable()
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    given = GivenBack(limits={"retention.bytes": "500"}, since_ms=1)
    rig.settings.write(replace(record, given_back=given), epoch=0)
    take_store_away(rig)
    await run(rig)
    delete_up_to(rig, 200)
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start is None
    await run(rig)
    assert holes(rig) == [(0, 200, GIVEN_BACK)]
    await run(rig)
    rig.settings.write(record, epoch=0)
    rig.broker.config["retention.ms"] = "-1"
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start is None
    rig.broker.log_start_offset = 300
    await rig.trim.run(rig.led)
    assert rig.trim.statuses[PARTITION.key].foreign_log_start == 300


async def giving_back(rig: Rig, limit: int = 500) -> None:
    """The store is away, and the watch has seen what is not copied."""
    rig.enable()
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    given = GivenBack(limits={"retention.bytes": str(limit)}, since_ms=1)
    rig.settings.write(replace(record, given_back=given), epoch=0)
    take_store_away(rig)
    await run(rig)


async def test_h26_records_that_a_client_deletes_meanwhile_are_not_explained_as_ours(
    rig: Rig,
) -> None:
    """DeleteRecords ends at any offset; the broker's retention at the beginning of a segment."""
    await giving_back(rig)
    delete_up_to(rig, 100)
    rig.broker.log_start_offset = 150
    await run(rig)
    await run(rig)
    assert holes(rig) == [(0, 150, BY_RETENTION)]
    assert rig.settings.view.trim(PARTITION.key) is None


async def test_h26_a_move_that_leaves_less_than_the_limit_is_not_explained_as_ours(
    rig: Rig,
) -> None:
    await giving_back(rig, limit=1_000_000)
    delete_up_to(rig, 200)
    await run(rig)
    await run(rig)
    assert holes(rig) == [(0, 200, BY_RETENTION)]
    assert rig.settings.view.trim(PARTITION.key) is None


async def test_h15_a_move_past_what_is_held_open_is_explained_when_that_is_copied(rig: Rig) -> None:
    """Below the bound of a trim nothing is a hole, and what is held may be lost yet."""
    await giving_back(rig)
    snapshot = await rig.snapshots.take(rig.led)
    assert await rig.holds.hold(snapshot, {0, 100}) == 2
    delete_up_to(rig, 200)
    await run(rig)
    await run(rig)
    assert (rig.settings.view.trim(PARTITION.key), holes(rig)) == (None, [])
    rig.holds.forget(PARTITION.key)
    await run(rig)
    assert holes(rig) == [(0, 200, GIVEN_BACK)]
    await run(rig)
    explained = rig.settings.view.trim(PARTITION.key)
    assert explained is not None and explained.bound == 200


async def test_h01_what_is_not_proven_explains_no_move(rig: Rig) -> None:
    rig.enable()
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    given = GivenBack(limits={"retention.bytes": "500"}, since_ms=1)
    rig.settings.write(replace(record, given_back=given), epoch=0)
    take_store_away(rig)
    delete_up_to(rig, 200)
    await run(rig)
    await run(rig)
    assert rig.settings.view.trim(PARTITION.key) is None
    assert len(found(rig)) == 1


async def test_h15_a_move_past_an_attempt_is_explained_once_its_end_is_known(rig: Rig) -> None:
    """Below the bound of a trim nothing is a hole: the loss would never be on record."""
    rig.enable()
    record = rig.settings.view.topic(PARTITION.topic_id)
    assert record is not None
    given = GivenBack(limits={"retention.bytes": "500"}, since_ms=1)
    rig.settings.write(replace(record, given_back=given), epoch=0)
    take_store_away(rig)
    await run(rig)
    attempt = metadata(7, 0, 200, {0: 0}, STARTED)
    rig.ledger.write(attempt)
    delete_up_to(rig, 200)
    await run(rig)
    assert rig.settings.view.trim(PARTITION.key) is None
    rig.ledger.write(None, segment_id=attempt.segment_id)
    await run(rig)
    assert holes(rig) == [(0, 200, GIVEN_BACK)]
    await run(rig)
    explained = rig.settings.view.trim(PARTITION.key)
    assert explained is not None
    assert explained.bound == 200
