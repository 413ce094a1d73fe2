"""Objects that the ledger does not list: what they say about the ledger (H6), and what is left."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.ids import RemoteLogSegmentId, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.verification import Issue, IssueKind
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.verification import PartitionReport
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.rlm.tasks.test_verification import leave, name_of, segment

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """[0, 100), [100, 200), [200, 300) remote, and all of them local."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led, CopyRequest(up_to_offset=200))
    await made.copy.run(made.led)
    return made


async def verified(rig: Rig) -> tuple[list[Issue], PartitionReport]:
    """Notes too."""
    found = [event async for event in rig.verify_runs.run("", deep=False)]
    (report,) = [one for one in found if isinstance(one, PartitionReport)]
    return [one for one in found if isinstance(one, Issue)], report


def lose_record(rig: Rig) -> RemoteLogSegmentMetadata:
    """The ledger has lost the records of the last segment, as in an unclean election."""
    lost = segment(rig, 200)
    rig.ledger.lose_tail(2)
    assert lost.segment_id.id not in rig.ledger.view.entries
    return lost


async def test_h06_a_whole_segment_that_the_ledger_lost_is_a_finding(rig: Rig) -> None:
    lost = lose_record(rig)
    objects = dict(rig.store.objects)
    (issue,), report = await verified(rig)
    assert (issue.kind, issue.segment_id) == (IssueKind.UNLISTED, lost.segment_id.id)
    assert "from offset 200" in issue.text
    assert object_name(lost.locator(CLUSTER_ID), ObjectKind.LOG) == f"{issue.object_name}.log"
    assert issue.action
    assert (report.findings, report.unchecked) == (1, ())
    assert rig.store.objects == objects


async def test_what_has_ended_or_has_no_manifest_is_a_note(rig: Rig) -> None:
    manifest = rig.store.objects.pop(name_of(rig, 200, ObjectKind.MANIFEST))
    lost = lose_record(rig)
    (issue,), report = await verified(rig)
    assert (issue.kind, report.findings) == (IssueKind.LEFTOVER, 0)
    rig.store.objects[object_name(lost.locator(CLUSTER_ID), ObjectKind.MANIFEST)] = manifest
    assert [one.kind for one in (await verified(rig))[0]] == [IssueKind.UNLISTED]
    rig.remote_start(300)
    assert [one.kind for one in (await verified(rig))[0]] == [IssueKind.LEFTOVER]


async def test_h12_a_copy_under_way_is_not_unlisted(rig: Rig) -> None:
    """Its record comes between the listing and the barrier."""
    lost = lose_record(rig)
    asked = rig.broker.after_answer

    def begins(question: str) -> None:
        rig.broker.after_answer = asked
        rig.ledger.write(lost.in_state(STARTED, event_timestamp_ms=0, broker_id=2))

    rig.broker.after_answer = begins
    issues, report = await verified(rig)
    assert [one.kind for one in issues] == [IssueKind.UNFINISHED]
    assert report.findings == 0


async def test_what_is_deleted_meanwhile_is_not_unlisted(rig: Rig) -> None:
    """The objects and the entry go between the listing and the barrier."""
    rig.enable(mode="copy", trim=False)
    lost = lose_record(rig)

    def deletes(_: str) -> None:
        for name in object_names(lost.locator(CLUSTER_ID)).values():
            rig.store.objects.pop(name, None)

    rig.broker.after_answer = deletes
    assert (await verified(rig))[0] == []


async def test_a_segment_that_is_deleted_as_a_whole_leaves_nothing(rig: Rig) -> None:
    leave(rig, segment(rig, 200))
    assert (await verified(rig))[0] == []


async def test_objects_of_other_partitions_are_not_counted(rig: Rig) -> None:
    lost = segment(rig, 200)
    number = RemoteLogSegmentId(
        topic_id_partition=replace(PARTITION, partition=7), id=Uuid(b"\x99" * 16)
    )
    locator = replace(lost.locator(CLUSTER_ID), segment_id=number)
    rig.store.objects[object_name(locator, ObjectKind.MANIFEST)] = b"x"
    assert (await verified(rig))[0] == []


async def test_h38_a_store_that_cannot_be_listed_is_unchecked(rig: Rig) -> None:
    identity = rig.store.identity
    assert identity is not None
    lose_record(rig)
    rig.store.identity = replace(identity, store_id=Uuid(b"\x77" * 16))
    issues, report = await verified(rig)
    assert issues == []
    assert any(f"store {STORE_ID} were not listed" in why for why in report.unchecked)
