"""/healthz and /metrics."""

import socket
from dataclasses import replace

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from build_tools.reference.metrics import KAFKA_NAMES, generate_docs
from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.api.ports import PartitionStatus
from rlm.plans.problems import Problem, ProblemKind
from rlm.service.gauges import problem_gauges, task_gauges
from rlm.service.listeners import HealthState, HttpServer
from rlm.service.metric_rows import MetricKind
from rlm.service.metrics import TABLE, ServiceMetrics
from rlm.service.partition_gauges import PartitionGauges
from rlm.tasks.pool import TaskPool
from tests.builders.clock import ManualClock

STATUS = PartitionStatus(
    topic="t",
    topic_id=Uuid(b"1" * 16),
    partition=3,
    leader=1,
    leader_epoch=0,
    lag_bytes=77,
    remote_next_offset=12,
    frozen="look",
    alarms=("a", "b"),
)
FULL = Problem(
    kind=ProblemKind.STORE_REFUSES_WRITES, subject="store hot", text="it is full", since_ms=7
)


def metrics() -> ServiceMetrics:
    pool = TaskPool("copy", ManualClock(), size=1, queue_limit=1)
    found = ServiceMetrics()
    found.add_gauges(
        lambda: PartitionGauges(ManualClock()).read([STATUS]), lambda: task_gauges([pool])
    )
    found.add_gauges(lambda: problem_gauges([FULL]))
    return found


async def test_healthz_follows_liveness_and_reports_the_rest() -> None:
    states = [
        HealthState(alive=True, ready=True, problems=[FULL]),
        HealthState(alive=False, ready=False, problems=[]),
    ]
    server = HttpServer(
        host="127.0.0.1", port=0, health=lambda: states[0], metrics=metrics().render
    )
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/healthz") as answer:
                assert answer.status == 200
                assert await answer.json() == {
                    "status": "ok",
                    "ready": True,
                    "health": "alarm",
                    "problem_count": 1,
                    "problems": [
                        {
                            "kind": "store-refuses-writes",
                            "severity": "alarm",
                            "subject": "store hot",
                            "topic": "",
                            "text": "it is full",
                            "since_ms": 7,
                        }
                    ],
                }
            states.pop(0)
            async with session.get("/healthz") as answer:
                assert answer.status == 503
            async with session.get("/metrics") as answer:
                assert answer.status == 200
                assert "text/plain" in answer.headers["Content-Type"]
                assert "rlm_remote_copy_lag_bytes" in await answer.text()
            async with session.get("/") as answer:
                assert answer.status == 404
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("state", "healthz", "readyz"),
    [
        (HealthState(alive=True, ready=True, problems=[FULL]), 200, 200),
        (HealthState(alive=True, ready=False, problems=[]), 200, 503),
        (HealthState(alive=False, ready=True, problems=[]), 503, 503),
    ],
)
async def test_h38_a_problem_takes_no_service_out_of_service(
    state: HealthState, healthz: int, readyz: int
) -> None:
    server = HttpServer(host="127.0.0.1", port=0, health=lambda: state, metrics=bytes)
    port = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path, status in (("/healthz", healthz), ("/readyz", readyz)):
                async with session.get(path) as answer:
                    assert answer.status == status
    finally:
        await server.stop()


def test_h38_a_lag_that_is_not_known_has_no_sample() -> None:
    gauges = PartitionGauges(ManualClock()).read(
        [replace(STATUS, lag_bytes=None, lag_segments=None)]
    )
    assert gauges["rlm_remote_copy_lag_bytes"] == ""
    assert gauges["rlm_partition_frozen"] == 'rlm_partition_frozen{partition="3",topic="t"} 1.0\n'


async def test_a_taken_port_is_invalid() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer(
            host="127.0.0.1",
            port=port,
            health=lambda: HealthState(alive=True, ready=True, problems=()),
            metrics=bytes,
        )
        with pytest.raises(Invalid, match=r"http\.listen: cannot listen on 127\.0\.0\.1"):
            await server.start()


def test_what_is_counted_is_rendered() -> None:
    counted = metrics()
    counted.connection_opened()
    counted.connection_closed("eof")
    counted.answered("fetch", "remote")
    counted.spliced(1_000)
    counted.barrier_waited(7, passed=True)
    counted.segment_copied("t", 500)
    counted.task_failed("copy")
    lines = counted.render().decode().splitlines()
    for line in (
        "rlm_proxy_connections_opened_total 1.0",
        'rlm_proxy_connections_closed_total{cause="eof"} 1.0',
        'rlm_proxy_answers_total{api="fetch",outcome="remote"} 1.0',
        "rlm_proxy_spliced_bytes_total 1000.0",
        'rlm_proxy_barrier_seconds_count{passed="true"} 1.0',
        'rlm_remote_copy_bytes_total{topic="t"} 500.0',
        'rlm_task_errors_total{task="copy"} 1.0',
        'rlm_remote_copy_lag_bytes{partition="3",topic="t"} 77.0',
        'rlm_partition_frozen{partition="3",topic="t"} 1.0',
        'rlm_tasks_waiting{task="copy"} 0.0',
        'rlm_problems{kind="store-refuses-writes",severity="alarm"} 1.0',
        'rlm_problems{kind="lag-unknown",severity="alarm"} 0.0',
        'rlm_partition_alarms{partition="3",topic="t"} 2.0',
    ):
        assert line in lines


def test_what_is_read_at_a_scrape_is_text_that_prometheus_reads() -> None:
    strange = 'a"b\\c\nd'
    counted = ServiceMetrics()
    counted.add_gauges(
        lambda: {
            "rlm_remote_log_size_bytes": {(strange, "3"): 1e20, ("t", "0"): 7},
            "rlm_stores_configured": {(): 2},
            "rlm_read_disk_cache_damaged_total": {(): 5},
        }
    )
    families = {one.name: one for one in text_string_to_metric_families(counted.render().decode())}
    read = {
        (sample.name, sample.labels.get("topic")): sample.value
        for one in families.values()
        for sample in one.samples
    }
    assert read["rlm_remote_log_size_bytes", strange] == 1e20
    assert read["rlm_remote_log_size_bytes", "t"] == 7
    assert read["rlm_stores_configured", None] == 2
    assert read["rlm_read_disk_cache_damaged_total", None] == 5
    assert families["rlm_read_disk_cache_damaged"].type == "counter"
    assert families["rlm_remote_log_size_bytes"].documentation


def test_the_docs_name_every_metric() -> None:
    docs = generate_docs()
    assert all(f"`{row.name}`" in docs for row in TABLE)
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_kafkas_names_lead_to_metrics_that_exist() -> None:
    samples = {row.name for row in TABLE} | {
        f"{row.name}_count" for row in TABLE if row.kind is MetricKind.HISTOGRAM
    }
    assert {ours for ours, _ in KAFKA_NAMES.values() if ours} <= samples
    assert all(ours or note for ours, note in KAFKA_NAMES.values())
