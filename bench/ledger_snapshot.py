"""`python -m bench.ledger_snapshot`: ready from a snapshot of the ledger at a million segments.

The records of `bench.ledger` are replayed once, and the snapshot is written from that. Then
processes of their own restore it: their seconds until every partition can be asked, by the clock
and of the processor, are the result; neither includes the start of the interpreter. Beside both, a
task wakes up every millisecond: its longest delay is how long the event loop stood still.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from bench.command import measure, parser, say
from bench.ledger import Feeder, partition, write_records
from bench.machine import commit, load_in_words, machine_in_words
from kip405.ids import Uuid
from rlm.clock import SystemClock
from rlm.service.ledger_snapshot import LedgerSnapshots
from rlmm.manager import Metadata
from rlmm.records import LEDGER_PARTITIONS
from rlmm.resuming import RecordMark, ResumePoint
from rlmm.topic import LEDGER_TOPIC
from rsm_plugins.threads import Threads

_TOPIC_ID = Uuid(b"ledger-of-bench-")
_LIMIT_S = 600


class _Log:
    """A metadata log that has read everything that the feeder gave to the manager."""

    damage = None
    topic_ids: Mapping[str, Uuid] = {LEDGER_TOPIC: _TOPIC_ID}

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder

    def resume_with(self, earlier: object) -> None:
        del earlier

    def remember_read(self, partition: int, point: ResumePoint) -> None:
        """The one that a service reads whole today."""
        del partition, point

    @property
    def ledger_read(self) -> int:
        return sum(self._feeder.next_offset.values())

    def ledger_point(self, number: int) -> ResumePoint | None:
        position = self._feeder.next_offset.get(number, 0)
        if not position:
            return None
        last = RecordMark(position - 1, 0, 0)
        return ResumePoint(log_start=0, position=position, leader_epoch=3, last=last)


def _snapshots(feeder: Feeder, folder: Path, threads: Threads) -> LedgerSnapshots:
    metadata = Metadata(
        log=cast(Any, _Log(feeder)), settings=cast(Any, None), manager=feeder.manager
    )
    return LedgerSnapshots(metadata, threads, SystemClock(), state_dir=folder, cluster_id="bench")


@asynccontextmanager
async def _measured(result: dict[str, Any]) -> AsyncIterator[None]:
    """Seconds of the block, and the longest time for which the loop stood still meanwhile."""
    longest = 0.0

    async def wake() -> None:
        nonlocal longest
        clock = SystemClock()
        while True:
            began = time.perf_counter()
            await clock.sleep_ms(1)
            longest = max(longest, time.perf_counter() - began - 0.001)

    waking = asyncio.ensure_future(wake())
    await SystemClock().sleep_ms(20)
    longest, began, cpu_began = 0.0, time.perf_counter(), time.process_time()
    yield
    result["wall_s"] = round(time.perf_counter() - began, 3)
    result["cpu_s"] = round(time.process_time() - cpu_began, 3)
    waking.cancel()
    result["longest_pause_ms"] = round(longest * 1_000, 2)


def _longest_freeze_ms(feeder: Feeder) -> float:
    """Of one ledger partition, processor time: what a snapshot takes of the event loop at once."""
    longest = 0.0
    for number in range(LEDGER_PARTITIONS):
        began = time.thread_time()
        feeder.manager.freeze(number)
        longest = max(longest, time.thread_time() - began)
    return round(longest * 1_000, 3)


async def _written(feeder: Feeder, folder: Path) -> dict[str, Any]:
    threads = Threads("bench", 2, hang_ms=60_000)
    result: dict[str, Any] = {}
    async with _measured(result):
        await _snapshots(feeder, folder, threads).write()
    threads.close()
    return result


async def _restored(folder: Path, partitions: int) -> dict[str, Any]:
    threads, feeder = Threads("bench", 2, hang_ms=60_000), Feeder()
    result: dict[str, Any] = {"load": load_in_words()}
    async with _measured(result):
        points = await _snapshots(feeder, folder, threads).restore(_TOPIC_ID)
    threads.close()
    totals = [
        feeder.manager.ledger(partition(number).key).finished_total.segments
        for number in range(partitions)
    ]
    feeder.lookup(partition(partitions - 1).key, 0)
    return {**result, "ledger_partitions": len(points), "segments": sum(totals)}


def _run(path: Path, folder: Path, partitions: int, times: int) -> dict[str, Any]:
    feeder = Feeder()
    records, replay_s = feeder.feed_file(path)
    feeder.manager.go_live(0)
    longest_freeze_ms = _longest_freeze_ms(feeder)
    writes = [asyncio.run(_written(feeder, folder)) for _ in range(2)]
    del feeder
    command = [sys.executable, "-m", "bench.ledger_snapshot", "--restore", str(folder)]
    loads = []
    for _ in range(times):
        done = subprocess.run(
            [*command, "--partitions", str(partitions)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_S,
            check=True,
        )
        loads.append(json.loads(done.stdout.splitlines()[-1]))
        say(str(loads[-1]))
    return {
        "size_bytes": sum(one.stat().st_size for one in folder.iterdir()),
        "records": records,
        "partitions": partitions,
        "ledger_partitions": LEDGER_PARTITIONS,
        "replay_cpu_s": round(replay_s, 2),
        "longest_freeze_cpu_ms": longest_freeze_ms,
        "writes": writes,
        "restores": loads,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.ledger_snapshot", __doc__)
    made.add_argument("--records", help="file of records; written where it is not there")
    made.add_argument("--partitions", type=int, help="default 10000")
    made.add_argument("--times", type=int, default=5, help="how often it is restored")
    made.add_argument("--restore", help="restore the snapshot of this directory, and nothing else")
    given = made.parse_args(arguments)
    partitions = given.partitions or (100 if given.quick else 10_000)
    if given.restore:
        say(json.dumps(asyncio.run(_restored(Path(given.restore), partitions))))
        return 0

    def run() -> tuple[list[str], dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            path, state = Path(given.records or f"{folder}/records"), Path(folder, "state")
            state.mkdir()
            if not path.exists():
                write_records(path, partitions, 20 if given.quick else 100)
            found = _run(path, state, partitions, given.times)
        about = {"commit": commit(), "machine": machine_in_words(), "load": load_in_words()}
        return [], {**about, **found}

    return measure(given, "ledger-snapshot", run)


if __name__ == "__main__":
    raise SystemExit(main())
