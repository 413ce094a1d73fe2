"""Gauges of the service: values of its components by the metric names of rlm/service/metrics.py.

Each function is called at every scrape. A value that is not known has no sample; it is never 0.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from kip405.ids import PartitionKey
from rlm.api.ports import PartitionStatus
from rlm.plans.problems import KINDS, Problem
from rlm.plans.process_rules import ProcessObservation
from rlm.service.metrics import GaugeSource, Labelled
from rlm.service.partition_gauges import PartitionGauges
from rlm.stores.reports import StoreStatus
from rlm.tasks.copy_progress import Copying
from rsm_plugins.threads import Threads


def purgatory_gauges(size: int) -> dict[str, Labelled]:
    """Gauge of the remote reads that fetches wait for."""
    return {"rlm_remote_fetch_purgatory_size": {(): size}}


def held_gauges(held: int, without_room: int) -> dict[str, Labelled]:
    """Uncopied segments of topics whose retention somebody bounded."""
    return {
        "rlm_segments_held_open": {(): held},
        "rlm_segments_not_held_open": {(): without_room},
    }


class PoolView(Protocol):
    """What metrics show of a task pool (rlm.tasks.pool.TaskPool)."""

    name: str

    @property
    def running(self) -> Collection[PartitionKey]: ...

    @property
    def waiting_count(self) -> int: ...

    @property
    def size(self) -> int: ...


def task_gauges(partition_tasks: Iterable[PoolView]) -> dict[str, Labelled]:
    """Gauges of the copy and cleanup pools."""
    pools = tuple(partition_tasks)
    return {
        "rlm_tasks_waiting": {(pool.name,): pool.waiting_count for pool in pools},
        "rlm_tasks_slots": {(pool.name,): pool.size for pool in pools},
        "rlm_tasks_running": {(pool.name,): len(pool.running) for pool in pools},
    }


def copy_gauges(copying: Copying) -> dict[str, Labelled]:
    """Gauges of what is to be copied, how fast copies go, their limit, and the time left."""
    progress = copying.progress
    rows: dict[str, Labelled] = {
        "rlm_copy_left_bytes": {(): progress.bytes_left},
        "rlm_copy_unmeasured_partitions": {(): copying.unmeasured_partitions},
        "rlm_copy_limit_bytes_per_second": {(): copying.limit_bytes_per_second},
    }
    if progress.bytes_per_second is not None:
        rows["rlm_copy_bytes_per_second"] = {(): progress.bytes_per_second}
    if progress.left_ms is not None:
        rows["rlm_copy_left_seconds"] = {(): progress.left_ms / 1000}
    return rows


def process_gauges(processes: Sequence[ProcessObservation]) -> dict[str, Labelled]:
    """Gauges of a service with proxy workers; no samples without."""
    if not processes:
        return {}
    core, *workers = processes
    return {
        "rlm_workers_connected": {(): sum(not one.is_missing for one in workers)},
        "rlm_process_recent_ends": {
            (one.name,): one.recent_ends for one in (core, *workers) if one.up_ms
        },
    }


def thread_gauges(pools: Iterable[Threads]) -> dict[str, Labelled]:
    """The number of hanging threads in each pool."""
    found = {pool.name: pool.hung() for pool in pools}
    return {
        "rlm_threads_hung": {(name,): hung.count if hung else 0 for name, hung in found.items()}
    }


def store_gauges(stores: Iterable[StoreStatus]) -> dict[str, Labelled]:
    """Gauges of the stores. A store that only segments name has no name and is not available."""
    rows: dict[str, dict[tuple[str, ...], float]] = {"rlm_stores_configured": {(): 0}}
    for store in stores:
        rows["rlm_stores_configured"][()] += bool(store.name)
        labels = (store.name, "" if store.store_id is None else str(store.store_id))
        for name, value in (
            ("rlm_store_available", int(not store.problem)),
            ("rlm_store_segments", store.segments),
            ("rlm_store_size_bytes", store.size_bytes),
            ("rlm_store_alarms", len(store.alarms)),
        ):
            rows.setdefault(name, {})[labels] = value
    return dict(rows)


def problem_and_partition_gauges(
    problems: Callable[[], Sequence[Problem]],
    statuses: Callable[[Sequence[Problem]], Sequence[PartitionStatus]],
    partitions: PartitionGauges,
) -> GaugeSource:
    """Both, from problems that are collected once: that takes time for every partition."""

    def read() -> dict[str, Labelled | str]:
        current = problems()
        return {**problem_gauges(current), **partitions.read(statuses(current))}

    return read


def problem_gauges(problems: Iterable[Problem]) -> dict[str, Labelled]:
    """The number of problems by kind; a kind without any is 0, so that alerts have a series."""
    counts = Counter(problem.kind for problem in problems)
    return {
        "rlm_problems": {
            (kind.value, row.severity.value): counts[kind] for kind, row in KINDS.items()
        }
    }
