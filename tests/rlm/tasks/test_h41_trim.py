"""What a trim stands on is asked again right before it; none is executed unnoticed (H5, H41)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.remote_log.snapshots import PartitionSnapshot
from rlmm.publisher import OutcomeUnknown
from tests.builders.ledger import OTHER_WRITER, PARTITION
from tests.builders.rig import DRAIN_MS, Rig

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    """Three segments of 100 copied, the active one from 300 to 350."""
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, 300, end=350)
    await made.copy.run(made.led)
    return made


def compacted(rig: Rig) -> None:
    rig.broker.config["cleanup.policy"] = "compact,delete"


def bounded_again(rig: Rig) -> None:
    rig.broker.config["retention.ms"] = "604800000"


def reassigned(rig: Rig) -> None:
    """To a broker whose service lives, but which has no record yet."""
    rig.heartbeat(2)
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2))


def reassigned_to_a_dead_service(rig: Rig) -> None:
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1, 2))


def ledger_lost(rig: Rig) -> None:
    rig.ledger.problem = "it ends below what was read"


def disputed(rig: Rig) -> None:
    first = rig.ledger.view.in_state(FINISHED)[0]
    rig.ledger.write(first.metadata, previous=3, writer=OTHER_WRITER)


def shrunk(rig: Rig) -> None:
    rig.broker.ends_at(250)


def keeps_more(rig: Rig) -> None:
    rig.enable(local_ms=10**15)


def trim_off(rig: Rig) -> None:
    rig.enable(trim=False)


def kept(rig: Rig) -> None:
    rig.enable(mode="copy")


CHANGES: dict[str, Callable[[Rig], None]] = {
    "topic must not be trimmed|cleanup.policy": compacted,
    "retention is bounded": bounded_again,
    "waiting for replicas": reassigned,
    "no live service": reassigned_to_a_dead_service,
    "the ledger has a problem": ledger_lost,
    "nothing more is contiguously remote": disputed,
    "at most 200|frozen": shrunk,
    "within local retention": keeps_more,
    "trim is off": trim_off,
    "in mode copy": kept,
}


@pytest.mark.parametrize("said", CHANGES)
async def test_h05_what_changes_after_the_plan_stops_the_trim(rig: Rig, said: str) -> None:
    """Each comes when the intent was read back, which is the last thing before the check."""
    rig.settings.after_publish = lambda: CHANGES[said](rig)
    with pytest.raises(RemoteStorageError, match=said):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


@pytest.mark.parametrize("change", [compacted, ledger_lost, kept, shrunk])
async def test_h05_what_changes_after_the_plan_stops_the_delete_of_what_ended_too(
    rig: Rig, change: Callable[[Rig], None]
) -> None:
    rig.remote_start(300)
    plain, snapshots = rig.snapshots.take, list[PartitionSnapshot]()

    async def take(led: LedPartition) -> PartitionSnapshot:
        if snapshots:
            change(rig)
        snapshots.append(await plain(led))
        return snapshots[-1]

    rig.snapshots.take = take  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        await rig.trim.run(rig.led)
    assert len(snapshots) == 2
    assert rig.broker.deleted == []


async def test_h05_a_service_that_dies_between_plan_and_trim_stops_it(rig: Rig) -> None:
    """That of node 2 was heard of last 59 s before the plan; for 60 s it counts as alive."""
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2), isr=(1, 2))
    rig.heartbeat(2)
    rig.clock.advance(59_000)
    rig.heartbeat()
    rig.settings.after_publish = lambda: rig.clock.advance(2_000)
    with pytest.raises(Fenced, match=r"no live service: beside broker 2"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h05_an_older_snapshot_is_not_trusted_with_replicas(rig: Rig) -> None:
    snapshot = await rig.snapshots.take(rig.led)
    rig.broker.partition = replace(rig.broker.partition, replicas=(1, 2, 3), isr=(1,))
    with pytest.raises(Fenced, match="no live service"):
        await rig.trim.run_on(snapshot, rig.clock.monotonic_ms())
    assert rig.trim.statuses[PARTITION.key].detail == "beside brokers 2, 3"


async def test_h05_a_copy_that_was_not_looked_for_in_the_store_is_not_trimmed_on(rig: Rig) -> None:
    """Another copy of the same offsets replaced the one that was seen."""
    other = replace(
        rig.ledger.view.in_state(FINISHED)[0].metadata, broker_id=7, event_timestamp_ms=5
    )
    rig.settings.after_publish = lambda: rig.ledger.write(other, previous=1)
    with pytest.raises(Fenced, match=r"other copies|contiguously"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h41_a_last_check_that_took_too_long_is_none(rig: Rig) -> None:
    plain = rig.snapshots.take
    snapshots: list[PartitionSnapshot] = []

    async def slow(led: object) -> PartitionSnapshot:
        if snapshots:
            rig.clock.advance(3_001)
        snapshots.append(await plain(rig.led))
        return snapshots[-1]

    rig.snapshots.take = slow  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"trim\.check\.max\.age\.ms"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h41_the_brokers_own_hold_is_within_the_deadline(rig: Rig) -> None:
    """The plan's deadline is 10 s, the broker may hold the request for 1 s."""
    rig.settings.after_publish = lambda: rig.clock.advance(9_001)
    with pytest.raises(Unavailable, match=r"9001 ms old.*trim\.plan\.deadline\.ms"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []


async def test_h41_nothing_is_sent_to_a_broker_that_does_not_answer(rig: Rig) -> None:
    rig.broker.answers = False
    with pytest.raises(Unavailable, match="does not answer"):
        await rig.trim.run(rig.led)
    rig.broker.answers = True
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]


async def lost(rig: Rig) -> None:
    rig.broker.gives_up_deletes = True
    with pytest.raises(OutcomeUnknown):
        await rig.trim.run(rig.led)
    rig.broker.gives_up_deletes = False


async def test_h41_a_trim_without_an_answer_is_unknown_until_it_cannot_be_executed(
    rig: Rig,
) -> None:
    await lost(rig)
    assert dict(rig.deletions.unknown) == {(PARTITION.topic, PARTITION.partition): 300}
    for _ in range(3):  # the first answer begins the time; before it is over nothing is planned
        with pytest.raises(Unavailable, match="not known yet"):
            await rig.trim.run(rig.led)
        rig.clock.advance(DRAIN_MS // 3)
    rig.clock.advance(DRAIN_MS)
    rig.heartbeat()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300], "planned and asked again"
    assert not rig.deletions.unknown


async def test_h41_a_trim_that_is_executed_late_is_seen_by_the_log_start(rig: Rig) -> None:
    await lost(rig)
    with pytest.raises(Unavailable, match="not known yet"):
        await rig.trim.run(rig.led)
    rig.broker.work_off()
    await rig.trim.run(rig.led)
    assert rig.broker.deleted == [300]
    assert not rig.deletions.unknown


async def test_h41_time_without_an_answer_of_the_broker_counts_for_nothing(rig: Rig) -> None:
    """A broker that is paused for an hour executes what it finds in its sockets after it."""
    await lost(rig)
    rig.clock.advance(3_600_000)
    rig.heartbeat()
    with pytest.raises(Unavailable, match="not known yet"):
        await rig.trim.run(rig.led)
    rig.broker.work_off()
    assert rig.broker.log_start_offset == 300


async def test_h41_another_leadership_in_between_counts_for_nothing(rig: Rig) -> None:
    await lost(rig)
    rig.trim.forget(PARTITION.key)
    rig.broker.elect(1, 2)
    rig.disk.epochs({0: 0, 2: 350})
    with pytest.raises(Unavailable, match="not known yet"):
        await rig.trim.run(rig.led)


async def test_h41_a_cancelled_task_leaves_its_trim_unknown(rig: Rig) -> None:
    arrived = rig.broker.answers_late = asyncio.Event()
    trim = asyncio.ensure_future(rig.trim.run(rig.led))
    await arrived.wait()
    trim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trim
    assert rig.broker.closed_connections == 1
    rig.broker.answers_late = None
    with pytest.raises(Unavailable, match="not known yet"):
        await rig.trim.run(rig.led)
    assert rig.broker.deleted == []
