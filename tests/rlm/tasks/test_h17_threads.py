"""A snapshot, which barriers of the proxy need, waits for no copy; hanging disks show (H17)."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from rlm.config.loader import reader_from_mapping
from rlm.plans.problem_rules import hung_threads_finding
from rlm.plans.problems import ProblemKind
from rlm.service.gauges import thread_gauges
from rlm.service.threads import service_threads
from rlm.tasks.copy_order import Turn
from rsm_plugins.threads import Threads
from tests.builders.rig import Rig
from tests.builders.threads import THREADS, all_of
from tests.waiting import pass_time, until


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hangs waits for it."""
    made = threading.Event()
    yield made
    made.set()


async def test_h17_a_snapshot_waits_for_no_copy(tmp_path: Path, gate: threading.Event) -> None:
    """All threads of copies are at work, and ten more copies wait for one."""
    copies, snapshots = Threads("copies", 2), Threads("snapshots", 1)
    rig = Rig(tmp_path, threads=replace(all_of(THREADS), copies=copies, snapshots=snapshots))
    rig.write_log(0, 100, 200, 300, end=350)
    snapshot = await rig.snapshots.take(rig.led)
    for _ in range(2):
        copies.begin(gate.wait)
    segment = snapshot.log.segments[0]
    waiting = [asyncio.ensure_future(rig.copier.copy(snapshot, segment, Turn())) for _ in range(10)]
    async with asyncio.timeout(60):
        await rig.snapshots.take(rig.led)
    assert not any(copy.done() for copy in waiting)
    gate.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    copies.close()
    snapshots.close()


async def test_h17_a_hanging_disk_is_an_error_and_a_number(
    tmp_path: Path, gate: threading.Event
) -> None:
    pass_time(0)  # the pool keeps the clock of its loop
    snapshots, hangs = Threads("snapshots", 1, hang_ms=60_000), threading.Event()
    rig = Rig(tmp_path, threads=replace(all_of(THREADS), snapshots=snapshots))
    rig.write_log(0, 100, 200, 300, end=350)

    def hang() -> None:
        hangs.set()
        gate.wait()

    rig.log_dirs.after_scan = hang
    taking = asyncio.ensure_future(rig.snapshots.take(rig.led))
    await until(hangs.is_set)
    pass_time(60)
    with pytest.raises(Unavailable, match="work of snapshots has not ended within 60000 ms"):
        await taking
    assert thread_gauges(rig.threads.pools())["rlm_threads_hung"] == {
        ("snapshots",): 1,
        ("tests",): 0,
    }
    rig.log_dirs.after_scan = lambda: None
    await rig.snapshots.take(rig.led)
    (hung,) = rig.threads.hung()
    assert (hung.pool, hung.count) == ("snapshots", 1)
    finding = hung_threads_finding(hung.pool, hung.count, 61_000)
    assert (finding.kind, finding.subject) == (ProblemKind.HUNG_THREADS, "threads snapshots")
    snapshots.close()


async def test_h17_each_kind_of_work_has_threads_of_its_own(tmp_path: Path) -> None:
    config = reader_from_mapping(
        {
            "cluster.id": "ours",
            "state.dir": str(tmp_path),
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "grpc.listen": "127.0.0.1:1",
            "http.listen": "127.0.0.1:1",
            "plugin.address": "127.0.0.1:1",
            "threads.hang.ms": 20,
        }
    )
    with service_threads(config) as threads:
        pools = threads.pools()
        assert len(set(pools)) == len({pool.name for pool in pools}) == 7
        assert [await pool.run(lambda: 1) for pool in pools] == [1] * 7
    with pytest.raises(Unavailable, match="closed"):
        await threads.other.run(lambda: 1)
