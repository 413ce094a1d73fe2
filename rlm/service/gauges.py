"""Gauges of the service: values of its components by the metric names of rlm/service/metrics.py.

Each function is called at every scrape. A value that is not known has no sample; it is never 0.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol

from kip405.ids import PartitionKey
from rlm.api.ports import PartitionStatus
from rlm.plans.problems import KINDS, Problem
from rlm.service.metrics import Labelled
from rlm.stores.reports import StoreStatus
from rsm_plugins.threads import Threads


def partition_gauges(statuses: Iterable[PartitionStatus]) -> dict[str, Labelled]:
    """Gauges of the partitions that this node leads."""
    rows: dict[str, dict[tuple[str, ...], float]] = {}
    for status in statuses:
        labels = (status.topic, str(status.partition))
        for name, value in (
            ("rlm_remote_copy_lag_bytes", status.lag_bytes),
            ("rlm_remote_copy_lag_segments", status.lag_segments),
            ("rlm_remote_log_size_bytes", status.remote_size_bytes),
            ("rlm_remote_log_start_offset", status.remote_log_start_offset),
            ("rlm_remote_next_offset", status.remote_next_offset),
            ("rlm_local_log_start_offset", status.local_log_start_offset),
            ("rlm_partition_frozen", int(bool(status.frozen))),
            ("rlm_partition_alarms", len(status.alarms)),
        ):
            if value is None:
                continue
            rows.setdefault(name, {})[labels] = value
    return dict(rows)


def purgatory_gauges(size: int) -> dict[str, Labelled]:
    """Gauge of the remote reads that fetches wait for."""
    return {"rlm_remote_fetch_purgatory_size": {(): size}}


class PoolView(Protocol):
    """What metrics show of a task pool (rlm.tasks.pool.TaskPool)."""

    name: str

    @property
    def running(self) -> Collection[PartitionKey]: ...

    @property
    def waiting_count(self) -> int: ...


def task_gauges(partition_tasks: Iterable[PoolView]) -> dict[str, Labelled]:
    """Gauges of the copy and cleanup pools."""
    pools = tuple(partition_tasks)
    return {
        "rlm_tasks_waiting": {(pool.name,): pool.waiting_count for pool in pools},
        "rlm_tasks_running": {(pool.name,): len(pool.running) for pool in pools},
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


def problem_gauges(problems: Iterable[Problem]) -> dict[str, Labelled]:
    """The number of problems by kind; a kind without any is 0, so that alerts have a series."""
    counts = Counter(problem.kind for problem in problems)
    return {
        "rlm_problems": {
            (kind.value, row.severity.value): counts[kind] for kind, row in KINDS.items()
        }
    }
