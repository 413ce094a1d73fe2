"""Status, health and metrics all report faults of a real cluster (H38): none is green meanwhile."""

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from rlm_sandbox.services import QUICK_SERVICE
from tests.busy import busy_factor
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import (
    plugin_that_obeys_modes,
    read_only_store,
    service_that_obeys_modes,
    unreadable,
)
from tests.scenarios.replicas import lead
from tests.scenarios.slowness import Slowness
from tests.service_log import events_of

pytestmark = pytest.mark.integration
_SOON_S = 120
_QUICK_BEAT_MS, _USUAL_BEAT_MS = QUICK_SERVICE["heartbeat.interval.ms"], 10_000
_REPORTED_S = 60
_FOLLOWED_S = 60
"""After its start a service knows nothing of its peers for 50 s."""


class Operator:
    """Asks every source in which the service of a broker reports a problem."""

    def __init__(self, cluster: Cluster, node_id: int = 1) -> None:
        self.cluster = cluster
        self._http = cluster.sandbox.state.ports[node_id].http
        self._grpc = f"127.0.0.1:{cluster.sandbox.state.ports[node_id].grpc}"

    def get(self, path: str) -> str:
        url = f"http://127.0.0.1:{self._http}{path}"
        with urllib.request.urlopen(url, timeout=_SOON_S) as answer:
            return str(answer.read().decode())

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/healthz"))
        return found

    def has(self, kind: str, subject: str) -> bool:
        rows = self.health()["problems"]
        return (kind, subject) in {(row["kind"], row["subject"]) for row in rows}

    def status(self, *arguments: str) -> Any:
        """Exit code, and the answer of `rlm status --json`."""
        done = self.cluster.rlm(
            "status", "--address", self._grpc, "--json", *arguments, check=False
        )
        return done.returncode, json.loads(done.stdout)

    def assert_all_report(self, kind: str, subject: str) -> None:
        """Waits for /healthz, then asks the others."""
        self.cluster.wait_for(lambda: self.has(kind, subject), f"{kind} of {subject}", _SOON_S)
        assert self.health()["health"] == "alarm"
        assert json.loads(self.get("/readyz"))["ready"] is True
        metric = f'rlm_problems{{kind="{kind}",severity="alarm"}} '
        [line] = [row for row in self.get("/metrics").splitlines() if row.startswith(metric)]
        assert float(line.removeprefix(metric)) >= 1
        code, answer = self.status()
        assert code == 1
        assert (kind, subject) in {(row["kind"], row["subject"]) for row in answer["problems"]}
        printed = self.cluster.rlm("status", "--address", self._grpc, check=False)
        assert (printed.returncode, printed.stderr) == (1, "")
        lines = printed.stdout.splitlines()
        assert len([row for row in lines if f"{subject}: " in row and f"[{kind}," in row]) == 1

    def wait_ended(self, *ended: tuple[str, str]) -> None:
        self.cluster.wait_for(
            lambda: not any(self.has(*one) for one in ended), f"the end of {ended}", _SOON_S
        )


def logged(log: Path, kind: str, subject: str) -> list[str]:
    """Events about one problem, in order."""
    rows = events_of(log)
    return [
        row["event"] for row in rows if (row.get("kind"), row.get("subject")) == (kind, subject)
    ]


def test_h38_a_partition_that_cannot_be_read(one: Cluster, tmp_path: Path) -> None:
    topic, log = fresh("unread"), tmp_path / "service.log"
    subject = f"{topic}-0"
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=3)
    one.wait_trimmed(topic)
    [directory] = [path / subject for path in one.sandbox.log_dirs() if (path / subject).is_dir()]
    operator = Operator(one)
    with service_that_obeys_modes(one, log):
        one.wait_for(lambda: one.status(topic)["lag_bytes"] == 0, "all is copied")
        with unreadable(directory):
            operator.assert_all_report("lag-unknown", subject)
            row = one.status(topic)
            assert row["lag_bytes"] is None and row["lag_segments"] is None
            lag = f'rlm_remote_copy_lag_bytes{{partition="0",topic="{topic}"}}'
            assert lag not in operator.get("/metrics")
        operator.wait_ended(("lag-unknown", subject))
        one.wait_for(lambda: one.status(topic)["lag_bytes"] == 0, "all is copied again")
    assert logged(log, "lag-unknown", subject) == ["problem", "problem_ended"]


def test_h38_a_store_that_takes_nothing(one: Cluster) -> None:
    topic = fresh("full")
    one.create_topic(topic)
    one.enable(topic)
    operator = Operator(one)
    reported: Sequence[tuple[str, str]] = (
        ("store-refuses-writes", "store default"),
        ("nothing-copied", f"{topic}-0"),
    )
    with plugin_that_obeys_modes(one):
        with read_only_store(one):
            one.fill(topic, mib=4)
            for kind, subject in reported:
                operator.assert_all_report(kind, subject)
            assert one.log_start(topic) == 0
        operator.wait_ended(*reported)
        one.wait_trimmed(topic)


@pytest.mark.parametrize(
    "heartbeat_ms", [_QUICK_BEAT_MS, pytest.param(_USUAL_BEAT_MS, marks=pytest.mark.long)]
)
def test_h38_a_broker_that_leads_without_a_service_is_reported_by_all_others(
    three: Cluster, heartbeat_ms: int, tmp_path: Path
) -> None:
    """Within 60 s of the kill with the usual heartbeats, and in as many of them with quick ones, on
    a machine with free cores.
    """
    topic = fresh("alone")
    three.create_topic(topic, assignment=[[2, 1, 3]])
    three.enable(topic)
    others = (Operator(three, 1), Operator(three, 3))
    with _heartbeats(three, heartbeat_ms):
        lead(three, topic, 2)  # that may have moved in the meantime
        killed_s = time.monotonic()
        three.sandbox.kill("rlm:2")
        try:
            with Slowness(tmp_path) as slowness:
                three.wait_for(
                    lambda: all(one.has("peer-absent", "node 2") for one in others),
                    "the problem at all others",
                    2 * _REPORTED_S,
                )
            took_s = time.monotonic() - killed_s - slowness.late_s
            print(f"all have reported it {took_s:.1f} s after the kill")
            assert took_s <= _REPORTED_S * heartbeat_ms / _USUAL_BEAT_MS * busy_factor()
            assert three.leader(topic) == 2
            for one in others:
                one.assert_all_report("peer-absent", "node 2")
        finally:
            three.sandbox.start("rlm:2")
        for one in others:
            one.wait_ended(("peer-absent", "node 2"))


@contextlib.contextmanager
def _heartbeats(cluster: Cluster, interval_ms: int) -> Iterator[None]:
    """All services with these, once they have followed their peers for long enough."""
    if interval_ms == _QUICK_BEAT_MS:
        _wait_followed(cluster)
        yield
        return
    configs = [cluster.sandbox.layout.rlm_config(node) for node in cluster.sandbox.state.ports]
    before = [path.read_text() for path in configs]
    try:
        for path, text in zip(configs, before, strict=True):
            config = yaml.safe_load(text) | {"heartbeat.interval.ms": interval_ms}
            path.write_text(yaml.safe_dump(config))
        _start_services_again(cluster)
        _wait_followed(cluster)
        yield
    finally:
        for path, text in zip(configs, before, strict=True):
            path.write_text(text)
        _start_services_again(cluster)


def _wait_followed(cluster: Cluster) -> None:
    pids = [broker["rlm_pid"] for broker in cluster.sandbox.json["brokers"]]
    youngest_s = max(psutil.Process(pid).create_time() for pid in pids)
    time.sleep(max(0.0, youngest_s + _FOLLOWED_S - time.time()))


def _start_services_again(cluster: Cluster) -> None:
    for node in cluster.sandbox.state.ports:
        cluster.sandbox.stop(f"rlm:{node}")
    for node in cluster.sandbox.state.ports:
        cluster.sandbox.start(f"rlm:{node}")
