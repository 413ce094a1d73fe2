"""`python -m bench.scale`, which `make bench-scale` calls: plans and reports over many segments.

A service leads 1,000, 5,000 and 10,000 partitions with 100 segments each; its ledger is read from
encoded records. Measured is processor time: of one round of copy, trim and expiry plans, of
`/metrics` and of the answer to `rlm status`, both as the whole service gives them (the first,
repeated after a poll of the leadership, and after a hundredth of the partitions has changed), and
memory that a round takes above the ledger.
"""

import asyncio
import gc
import json
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from bench.command import measure, numbers, parser, say
from bench.machine import commit, load_in_words, machine_in_words
from bench.scale_service import DAY_MS, EPOCHS, NODE_ID, RECORDS, SEGMENTS, Service, service_of
from kip405.lineage import Lineage
from rlm.clock import SystemClock
from rlm.plans.copy import CopyView, plan_copy
from rlm.plans.coverage import covered
from rlm.plans.expiry import ExpiryView, plan_expiry
from rlm.plans.guards import DeletionGuards
from rlm.plans.retention import LocalRetention
from rlm.plans.trim import TrimGuards, TrimOffsets, TrimPlan, plan_trim
from rlm.remote_log.snapshots import PartitionSnapshot
from rlmm.settings_records import TotalRetention

_REPEATS = 5
_LINEAGE = Lineage(EPOCHS)


def _expiring(snapshot: PartitionSnapshot) -> int:
    """How many segments of the partition expire."""
    view = ExpiryView(
        ledger=snapshot.ledger,
        lineage=_LINEAGE,
        log_end_offset=snapshot.log_end_offset,
        remote_log_start_offset=0,
        remote_log_start_epoch=0,
        log=snapshot.log,
        local_log_start_offset=snapshot.watermarks.log_start_offset,
        holes=(),
        copying=(),
        retention=TotalRetention(retention_ms=90 * DAY_MS),
        now_ms=SystemClock().now_ms(),
        most_percent=10,
    )
    return len(plan_expiry(view).segments)


def _to_copy(snapshot: PartitionSnapshot) -> int:
    """How many segments of the partition are to be copied."""
    view = CopyView(
        topic=snapshot.topic.state,
        segments=snapshot.log.segments,
        local_log_start_offset=snapshot.watermarks.log_start_offset,
        remote_log_start_offset=0,
        last_stable_offset=snapshot.watermarks.last_stable_offset,
        recovery_point=None,
        covered=covered(snapshot.ledger, snapshot.lineage, snapshot.log_end_offset),
        frozen=None,
    )
    return len(plan_copy(view).segments)


def _to_trim(snapshot: PartitionSnapshot) -> int:
    """1 where the partition is to be trimmed."""
    start = snapshot.watermarks.log_start_offset
    end = snapshot.ledger.contiguous_end(snapshot.lineage, snapshot.log_end_offset, start)
    guards = TrimGuards(
        deletion=DeletionGuards(ready=True, ledger_problem=None, freeze_record=None, frozen=None),
        topic=snapshot.topic.state,
        mode_is_tier=True,
        trim_on=True,
        retention_bounded=None,
        retention_unknown=None,
        replicas=(NODE_ID,),
        live_nodes={NODE_ID},
        namers=(),
        replicas_short_ms=None,
        hold_max_ms=0,
    )
    offsets = TrimOffsets(
        leader_epoch=0,
        lineage=_LINEAGE,
        segments=snapshot.log.segments,
        local_size_bytes=snapshot.log.size_bytes,
        local_log_start_offset=start,
        remote_log_start_offset=0,
        remote_log_start_epoch=0,
        high_watermark=snapshot.watermarks.high_watermark,
        last_stable_offset=snapshot.watermarks.last_stable_offset,
        contiguous_end=end,
        released_end=end,
        share_group_start=None,
        retention=LocalRetention(max_age_ms=None, max_bytes=0),
    )
    plan = plan_trim(guards, offsets, now_ms=SystemClock().now_ms(), planned_at_ms=0)
    return int(isinstance(plan, TrimPlan))


def _round(service: Service, plan: Callable[[PartitionSnapshot], int]) -> Callable[[], int]:
    """Plans of all partitions, one after the other as tasks make them; answers their sum."""
    return lambda: sum(plan(service.snapshot(row)) for row in service.rows())


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return round(time.process_time() - began, 4)


async def _report_s(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await work()
    return round(time.process_time() - began, 4)


def _rss_mib() -> float:
    return round(psutil.Process().memory_info().rss / (1 << 20), 1)


async def _reports(
    work: Callable[[], Awaitable[object]], poll: Callable[[], None], change: Callable[[], None]
) -> dict[str, Any]:
    """Seconds of the first report, of the same again after each poll, and after changes."""
    gc.collect()
    first, again, changed = await _report_s(work), [], []
    for _ in range(_REPEATS):
        poll()
        again.append(await _report_s(work))
    for _ in range(_REPEATS):
        poll()
        change()
        changed.append(await _report_s(work))
    return {"first_s": first, "again_s": again, "after_changes_s": changed}


async def _measured(partitions: int) -> dict[str, Any]:
    before_mib, began = _rss_mib(), time.process_time()
    async with service_of(partitions) as service:
        fold_s = round(time.process_time() - began, 4)
        gc.collect()
        folded_mib = _rss_mib()
        service.lead()
        plans: dict[str, Any] = {}
        for name, plan in (("expiry", _expiring), ("copy", _to_copy), ("trim", _to_trim)):
            work = _round(service, plan)
            first_s, views_mib = _cpu_s(work), _rss_mib()
            plans[name] = {
                "planned": work(),
                "first_round_s": first_s,
                "rounds_s": [_cpu_s(work) for _ in range(_REPEATS)],
                "above_the_views_mib": round(_rss_mib() - views_mib, 1),
            }
        more = iter(range(SEGMENTS, 10 * SEGMENTS))

        def change() -> None:
            at = next(more)
            for number in range(0, partitions, 100):
                service.ledger.add(number, at)

        async def metrics() -> bytes:
            return service.metrics()

        return {
            "partitions": partitions,
            "segments": partitions * SEGMENTS,
            "records_a_segment": RECORDS,
            "fold_s": fold_s,
            "ledger_mib": round(folded_mib - before_mib, 1),
            "views_mib": round(_rss_mib() - folded_mib, 1),
            "plans": plans,
            "metrics": await _reports(metrics, service.poll, change),
            "status": await _reports(service.status, service.poll, change),
        }


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        plans = ", ".join(
            f"{name} {one['first_round_s']} s then {statistics.median(one['rounds_s'])} s "
            f"({one['above_the_views_mib']} MiB)"
            for name, one in row["plans"].items()
        )
        reports = ", ".join(
            f"{name} {statistics.median(row[name]['again_s'])} s, after changes "
            f"{statistics.median(row[name]['after_changes_s'])} s"
            for name in ("metrics", "status")
        )
        yield f"{row['partitions']:>6} partitions: plans: {plans}; {reports}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.scale", __doc__)
    made.add_argument("--partitions", type=numbers(), help="such as 1000,5000,10000")
    given = made.parse_args(arguments)
    sizes = given.partitions or ((100,) if given.quick else (1_000, 5_000, 10_000))

    def run() -> tuple[list[str], dict[str, Any]]:
        rows = []
        for partitions in sizes:
            rows.append(asyncio.run(_measured(partitions)))
            say(json.dumps(rows[-1]))
            gc.collect()
        about = {"commit": commit(), "machine": machine_in_words(), "load": load_in_words()}
        most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
        return list(_lines(rows)), {**about, "most_mib": most_mib, "runs": rows}

    return measure(given, "scale", run)


if __name__ == "__main__":
    raise SystemExit(main())
