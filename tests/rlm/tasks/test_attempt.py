"""One attempt: what it checks before it leaves a record, and before it writes the manifest (H2, H3,
H11, H12, H16, H17).
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, Invalid, Unavailable
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.tasks.copy_request import CopyRequest
from tests.builders.ledger import OTHER_WRITER, OUR_WRITER, PARTITION
from tests.builders.rig import Rig

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DAY_MS = 86_400_000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, end=150)
    return made


def meanwhile(rig: Rig, what: Callable[[], None]) -> None:
    """Happens when the objects are up and the manifest is not."""

    def happen(operation: str) -> None:
        if operation == "copied":
            what()

    rig.store.before = happen


def attempt(rig: Rig) -> RemoteLogSegmentMetadata:
    (entry,) = rig.ledger.view.entries.values()
    return entry.metadata


@pytest.mark.parametrize("who", ["ledger", "settings"])
async def test_h17_nothing_is_copied_before_both_were_read(rig: Rig, who: str) -> None:
    getattr(rig, who).is_ready = False
    with pytest.raises(Unavailable, match="not read yet"):
        await rig.copy.run(rig.led)
    assert not rig.ledger.log


async def test_h11_no_attempt_is_begun_at_another_store(rig: Rig) -> None:
    assert rig.store.identity is not None
    rig.store.identity = replace(rig.store.identity, store_id=OTHER_WRITER)
    with pytest.raises(Invalid, match="the plugin serves store"):
        await rig.copy.run(rig.led)
    assert not rig.ledger.log


async def test_h12_an_attempt_is_known_as_live_while_it_lasts(rig: Rig) -> None:
    seen: list[bool] = []
    meanwhile(rig, lambda: seen.append(attempt(rig).segment_id.id in rig.live))
    await rig.copy.run(rig.led)
    assert seen == [True]
    assert len(rig.live) == 0


async def test_h16_a_wall_clock_that_jumps_ends_no_copy(rig: Rig) -> None:
    def jump() -> None:
        rig.clock.wall_ahead_ms = DAY_MS

    meanwhile(rig, jump)
    await rig.copy.run(rig.led)
    assert attempt(rig).state is FINISHED


async def test_h16_a_wall_clock_set_back_stretches_no_deadline(rig: Rig) -> None:
    def set_back() -> None:
        rig.clock.wall_ahead_ms = -DAY_MS
        rig.clock.advance(60_000)

    meanwhile(rig, set_back)
    with pytest.raises(Unavailable, match=r"copy\.deadline\.ms"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h12_a_copy_within_its_deadline_is_finished(rig: Rig) -> None:
    meanwhile(rig, lambda: rig.clock.advance(59_999))
    await rig.copy.run(rig.led)
    assert attempt(rig).state is FINISHED


async def test_h03_an_attempt_that_somebody_else_took_over_gets_no_manifest(rig: Rig) -> None:
    """The newest record says STARTED, as ours did, but it is another process's."""
    meanwhile(rig, lambda: rig.ledger.write(attempt(rig), previous=0, writer=OTHER_WRITER))
    with pytest.raises(Fenced, match="another task or service ended the attempt"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h03_an_attempt_whose_record_is_disputed_gets_no_manifest(rig: Rig) -> None:
    meanwhile(rig, lambda: rig.ledger.write(attempt(rig), previous=2, writer=OUR_WRITER))
    with pytest.raises(Fenced, match="another task or service ended the attempt"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h03_an_attempt_whose_record_is_gone_gets_no_manifest(rig: Rig) -> None:
    """The ledger lost its tail (H6)."""
    meanwhile(rig, lambda: rig.ledger.lose_tail(1))
    with pytest.raises(Fenced, match="another task or service ended the attempt"):
        await rig.copy.run(rig.led)
    assert not rig.names(".rsm-manifest")


async def test_h02_the_manifest_knows_the_remote_log_start(rig: Rig) -> None:
    rig.remote_start(40)
    await rig.copy.run(rig.led)
    manifest = json.loads(rig.store.objects[rig.names(".rsm-manifest")[0]])
    assert manifest["remote_log_start_offset"] == 40
    assert (manifest["start_offset"], manifest["end_offset"]) == (0, 99)


async def test_g03_the_manifest_is_there_before_finished_is_published(rig: Rig) -> None:
    seen: list[tuple[RemoteLogSegmentState, int, int]] = []

    def note(published: RemoteLogSegmentMetadata) -> None:
        objects = len(rig.store.objects)
        seen.append((published.state, objects, len(rig.names(".rsm-manifest"))))

    rig.ledger.before_publish = note
    await rig.copy.run(rig.led)
    assert seen == [(STARTED, 0, 0), (FINISHED, 3, 1)]


async def test_copying_now_ends_below_the_offset_that_was_asked_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, 200, 300, end=350)
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
    assert rig.ledger.view.highest_end((await rig.snapshots.take(rig.led)).lineage) == 100
    await rig.copy.run(rig.led, CopyRequest(up_to_offset=101))
    assert rig.ledger.view.highest_end((await rig.snapshots.take(rig.led)).lineage) == 200
    assert rig.copy.statuses[PARTITION.key].copied_next_offset == 200


async def test_h35_an_unknown_recovery_point_proves_nothing(rig: Rig) -> None:
    (rig.log_dir.path / "recovery-point-offset-checkpoint").unlink()
    await rig.copy.run(rig.led)
    assert not rig.ledger.log
    assert rig.copy.statuses[PARTITION.key].reason == "waiting for the recovery point"
