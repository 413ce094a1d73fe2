"""The benchmark of the connector: topics in a sandbox, then a Spark for each number of cores.

Every cell runs all variants in each pass, in changing order, in the same Spark. What is in it is
warm for all: the page cache, the JVM, Python workers; ours goes through the service and its plugin.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.machine import commit, load_in_words, machine_in_words
from bench.processes import BenchError, CpuMark
from bench.read import restart_service, use_production_intervals
from bench.spark import peer
from bench.spark.options import OURS, TASKS_IN_WORDS, TUNED_OPTIONS, Cell, SparkOptions
from bench.spark.queries import Queries
from bench.spark.report import Run, run_line, summary
from bench.spark.topics import SEED, disk_bytes, prepare
from bench.topics import Progress
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from rlm_spark import local_spark
from rlm_spark.decode import is_compiled

_HEAP_MIB = 1024
_DRIVER_MEMORY = "2g"
_WARM_UP_PASS = 0
_CONF = {"spark.driver.memory": _DRIVER_MEMORY, "spark.sql.shuffle.partitions": "2"}


def run_spark(options: SparkOptions, progress: Progress) -> tuple[list[Run], dict[str, Any]]:
    """All that was asked for; the runs, and the result as JSON values."""
    progress(f"machine: {machine_in_words()}; load {load_in_words()}")
    class_path = peer.source_class_path(progress)
    with (
        tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder,
        _sandbox(folder, options) as up,
    ):
        shares = prepare(up, options, progress)
        progress(f"remote share of records: {shares}")
        use_production_intervals(up)
        restart_service(up)
        runs: list[Run] = []
        for cores in options.cores:
            conf = {**_CONF, "spark.driver.extraClassPath": class_path}
            spark = local_spark.session("bench", cores=cores, conf=conf)
            try:
                queries = Queries(spark, up, Path(folder) / "export")
                pids = _pids(up, local_spark.java_pid(spark))
                for cell in options.cells(cores):
                    runs += _measure(queries, cell, options, pids, progress)
            finally:
                local_spark.stop(spark)
        sizes = {topic.name: disk_bytes(up, topic) for topic in options.topics}
        kafka = up.dist.version
    return runs, _document(options, runs, kafka, shares, sizes)


@contextmanager
def _sandbox(folder: str, options: SparkOptions) -> Iterator[Sandbox]:
    made = Sandbox.up(Path(folder) / "sandbox", SandboxSpec(jvm=options.jvm, heap_mib=_HEAP_MIB))
    try:
        yield made
    finally:
        made.down(delete=True)


def _pids(sandbox: Sandbox, java_pid: int) -> dict[str, int]:
    broker = sandbox.json["brokers"][0]
    return {
        "spark": java_pid,
        "broker": broker["broker_pid"],
        "service": broker["rlm_pid"],
        "plugin": broker["plugin_pid"],
    }


def _measure(
    queries: Queries,
    cell: Cell,
    options: SparkOptions,
    pids: Mapping[str, int],
    progress: Progress,
) -> list[Run]:
    """One pass to warm up, then those that count."""
    runs: list[Run] = []
    for number in range(_WARM_UP_PASS, options.passes + 1):
        for variant in cell.order(number):
            run = _timed(queries, cell, variant, number, pids)
            if run.records != options.records(cell.topic):
                raise BenchError(f"{variant}: {run.records} of {options.records(cell.topic)} came")
            warm_up = number == _WARM_UP_PASS
            progress(run_line(run) + ("  warm-up: not counted" if warm_up else ""))
            runs += [] if warm_up else [run]
    return runs


def _timed(queries: Queries, cell: Cell, variant: str, number: int, pids: Mapping[str, int]) -> Run:
    queries.clear()
    before = CpuMark.now(pids)
    began_s = time.monotonic()
    queries.run(cell, variant)
    wall_s = time.monotonic() - began_s
    after = CpuMark.now(pids)
    used = {role: round(after.roles[role] - before.roles[role], 3) for role in pids}
    foreign = (after.machine - before.machine - sum(used.values())) / wall_s
    answer = queries.answer(cell)
    return Run(
        cores=cell.cores,
        record_bytes=cell.topic.record_bytes,
        codec=cell.topic.codec,
        task=cell.task,
        variant=variant,
        pass_number=number,
        wall_s=round(wall_s, 4),
        records=answer.records,
        value_bytes=answer.value_bytes,
        cpu_s=used,
        foreign_cores=round(max(0.0, foreign), 3),
    )


def _document(
    options: SparkOptions,
    runs: list[Run],
    kafka: str,
    shares: Mapping[str, float],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "v": 1,
        "kind": "bench",
        "name": "spark",
        "commit": commit(),
        "machine": machine_in_words(),
        "kafka": kafka,
        "peer": peer.IN_WORDS,
        "decoder": "compiled" if is_compiled() else "python",
        "seeds": {"payload": SEED},
        "options": asdict(options),
        "tasks": {task: TASKS_IN_WORDS[task] for task in options.tasks},
        "peer_options": {"kafka tuned": TUNED_OPTIONS, "kafka default": {}},
        "our_options": {OURS: {"readMode": "remote_preferred"}},
        "remote_share": dict(shares),
        "log_bytes": dict(sizes),
        "caches": "page cache, JVMs, Python workers and the service warm for all",
        "cpu": "user + system seconds of a query; spark = driver JVM with its Python workers",
        "outcomes": summary(runs),
        "runs": [asdict(run) for run in runs],
    }
