"""Wrong use on a real broker: one clear line and a status that is not zero, each."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.readiness import service_is_ready
from tests.scenarios.cluster import Cluster, assert_same, fresh

pytestmark = pytest.mark.integration

_LIMIT_S = 120
_PLUGIN = "rsm_plugins.process.main"
_ELSEWHERE = "QRSTUVWXYZabcdefghijkA"


def line_of(done: subprocess.CompletedProcess[str], command: str = "rlm") -> str:
    """The one line of a refusal."""
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stderr
    lines = [one for one in done.stderr.splitlines() if one.startswith(f"{command}: ")]
    assert len(lines) == 1, done.stderr
    _, _, behind = done.stderr.partition(lines[0])  # proxy workers log that they stop
    assert all(one.startswith('{"') for one in behind.split("\n") if one), done.stderr
    return lines[0]


def refusal(cluster: Cluster, *arguments: str, again: bool = True) -> str:
    done = cluster.rlm(*arguments, check=False, again=again)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return line_of(done)


@pytest.fixture
def free_ports() -> Iterator[list[int]]:
    with PortReservation() as ports:
        taken = [ports.take() for _ in range(4)]
        ports.lend_all()
        yield taken


def serve(
    cluster: Cluster, where: Path, free_ports: list[int], changes: Mapping[str, Any]
) -> subprocess.CompletedProcess[str]:
    """`rlm serve` beside the broker of the sandbox, with a state dir and ports of its own."""
    config = yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text())
    names = ("proxy.listen", "proxy.advertised", "grpc.listen", "http.listen")
    config |= {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports, strict=True)}
    config |= {"state.dir": str(where / "state"), "grpc.advertised": config["grpc.listen"]}
    if "log.dirs" in changes:
        del config["broker.server.properties"]  # it would be the first to disagree
    return _serve("rlm.cli.main", {**config, **changes}, where)


def _serve(module: str, config: Any, where: Path) -> subprocess.CompletedProcess[str]:
    path = where / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return subprocess.run(
        [sys.executable, "-P", "-m", module, "serve", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _own(cluster: Cluster, name: str) -> str:
    return str(yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text())[name])


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "enable", "TOPIC"),
        ("topics", "disable", "TOPIC"),
        ("topics", "trim", "TOPIC", "on"),
        ("topics", "describe", "TOPIC"),
        ("segments", "TOPIC"),
        ("status", "TOPIC"),
        ("fetch", "TOPIC", "-p", "0", "-o", "0"),
        ("copy", "TOPIC"),
        ("freeze", "TOPIC"),
    ],
    ids=lambda arguments: "-".join(arguments[:2]).removesuffix("-TOPIC"),
)
def test_an_unknown_topic(one: Cluster, arguments: tuple[str, ...]) -> None:
    said = refusal(one, *("nowhere" if one == "TOPIC" else one for one in arguments))
    assert "nowhere" in said


@pytest.mark.kafka_scenario("RemoteTopicCrud")
def test_topics_that_must_not_be_enabled(one: Cluster) -> None:
    compacted, both = fresh("compacted"), fresh("both")
    one.create_topic(compacted, configs={"cleanup.policy": "compact"})
    one.create_topic(both, configs={"cleanup.policy": "compact,delete"})
    for topic in (compacted, both):
        said = refusal(one, "topics", "enable", topic)
        assert topic in said
        assert "compact" in said
    assert "__consumer_offsets" in refusal(one, "topics", "enable", "__consumer_offsets")
    assert "__rlm_settings" in refusal(one, "topics", "enable", "__rlm_settings")


@pytest.mark.kafka_scenario("RemoteTopicCrud")
def test_what_log_config_refuses(one: Cluster) -> None:
    topic = fresh("retention")
    one.create_topic(topic)
    options = ("--retention", "1h", "--local-retention", "2h")
    said = refusal(one, "topics", "enable", topic, *options)
    assert "local" in said
    assert "soon" in refusal(one, "topics", "enable", topic, "--retention", "soon")
    assert "is not enabled" in refusal(one, "topics", "disable", topic, "--delete")


def test_a_partition_that_is_not_there(one: Cluster) -> None:
    topic = fresh("short")
    one.create_topic(topic)
    one.enable(topic)
    assert "partition 7" in refusal(one, "fetch", topic, "-p", "7", "-o", "0")
    fetch = ("fetch", topic, "-p", "0", "-o", "99")
    one.wait_for(lambda: "99" in refusal(one, *fetch), "the leader's service, which says so")


@pytest.mark.parametrize("name", ["proxy.listen", "grpc.listen", "http.listen"])
def test_a_port_of_the_service_is_taken(
    one: Cluster, tmp_path: Path, free_ports: list[int], name: str
) -> None:
    taken = _own(one, name)
    said = line_of(serve(one, tmp_path, free_ports, {name: taken}))
    assert taken.rpartition(":")[2] in said
    assert "in use" in said or "taken" in said


def test_the_port_of_the_plugin_is_taken(one: Cluster, tmp_path: Path) -> None:
    config = yaml.safe_load(one.sandbox.layout.plugin_config(1).read_text())
    said = line_of(_serve(_PLUGIN, config, tmp_path), "rsm-plugin")
    assert config["listen"] in said


def test_a_second_service_on_the_same_state_dir(
    one: Cluster, tmp_path: Path, free_ports: list[int]
) -> None:
    said = line_of(serve(one, tmp_path, free_ports, {"state.dir": _own(one, "state.dir")}))
    running = psutil.Process(one.sandbox.json["brokers"][0]["rlm_pid"])
    pids = [running.pid, *(child.pid for child in running.children())]  # one is the core
    assert any(f"pid {pid})" in said for pid in pids)


def test_h13_another_brokers_log_dir(one: Cluster, tmp_path: Path, free_ports: list[int]) -> None:
    foreign = tmp_path / "logs"
    foreign.mkdir()
    meta = f"version=1\ncluster.id={_own(one, 'cluster.id')}\nnode.id=2\n"
    (foreign / "meta.properties").write_text(meta)
    done = serve(one, tmp_path, free_ports, {"log.dirs": [str(foreign)]})
    assert "node" in line_of(done)
    (foreign / "meta.properties").write_text(f"version=1\ncluster.id={_ELSEWHERE}\nnode.id=1\n")
    done = serve(one, tmp_path, free_ports, {"log.dirs": [str(foreign)]})
    assert _ELSEWHERE in line_of(done)


def test_h13_the_broker_behind_the_direct_listener_is_of_another_cluster(
    one: Cluster, tmp_path: Path, free_ports: list[int]
) -> None:
    foreign = tmp_path / "logs"
    foreign.mkdir()
    (foreign / "meta.properties").write_text(f"version=1\ncluster.id={_ELSEWHERE}\nnode.id=1\n")
    changes = {"log.dirs": [str(foreign)], "cluster.id": _ELSEWHERE}
    said = line_of(serve(one, tmp_path, free_ports, changes))
    assert _own(one, "cluster.id") in said


def test_h21_tiered_is_the_inter_broker_listener(
    one: Cluster, tmp_path: Path, free_ports: list[int]
) -> None:
    changes = {"broker.tiered.listener.name": "DIRECT"}
    said = line_of(serve(one, tmp_path, free_ports, changes))
    assert "inter-broker" in said
    changes = {"broker.tiered.listener.name": "CONTROLLER"}
    assert "controller" in line_of(serve(one, tmp_path, free_ports, changes))


def test_h23_clients_would_not_come_to_the_proxy(
    one: Cluster, tmp_path: Path, free_ports: list[int]
) -> None:
    said = line_of(serve(one, tmp_path, free_ports, {}))
    assert f"TIERED at {_own(one, 'proxy.advertised')}" in said
    assert f"proxy.advertised is 127.0.0.1:{free_ports[1]}" in said


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("proxy.lisen", "127.0.0.1:1", ("proxy.lisen", "proxy.listen")),
        ("trim.interval.ms", "often", ("trim.interval.ms", "often")),
        ("trim.interval.ms", -5, ("trim.interval.ms", "-5")),
        ("log.format", "xml", ("log.format", "json")),
        ("kafka.security.protocol", "SASL_SSL", ("kafka.security.protocol", "is PLAINTEXT")),
        ("grpc.listen", "0.0.0.0:1", ("grpc.listen", "allow_insecure")),
    ],
)
def test_a_bad_configuration_names_the_key_and_what_is_allowed(
    one: Cluster,
    tmp_path: Path,
    free_ports: list[int],
    name: str,
    value: object,
    words: tuple[str, ...],
) -> None:
    said = line_of(serve(one, tmp_path, free_ports, {name: value}))
    for word in words:
        assert word in said


def test_a_bad_configuration_of_the_plugin(one: Cluster, tmp_path: Path) -> None:
    config = yaml.safe_load(one.sandbox.layout.plugin_config(1).read_text())
    said = line_of(_serve(_PLUGIN, {**config, "plugin": "tape"}, tmp_path), "rsm-plugin")
    assert "local" in said
    said = line_of(_serve(_PLUGIN, {**config, "lisen": "x"}, tmp_path), "rsm-plugin")
    assert "lisen" in said


def test_the_plugin_is_not_reachable(one: Cluster) -> None:
    """Status says so; the proxy goes on."""
    topic = fresh("pluginless")
    one.create_topic(topic)
    one.enable(topic)
    one.sandbox.kill("plugin:1")
    one.sandbox.kill("rlm:1")
    one.sandbox.start("rlm:1", wait=False)
    rows = one.fill(topic, mib=2)
    assert_same(one.read_all(topic), rows)

    def shown() -> bool:
        done = one.rlm("status", topic, check=False)
        return not done.stderr and _own(one, "plugin.address") in done.stdout

    one.wait_for(shown, "status names the plugin that is not reachable")
    [service] = one.rlm_json("status")["services"]
    assert any("plugin" in text for text in service["problems"])
    http = int(_own(one, "http.listen").rpartition(":")[2])
    assert not service_is_ready(http)
    one.sandbox.start("plugin:1")
    one.wait_trimmed(topic)
    one.wait_for(lambda: service_is_ready(http), "well again")


def test_there_is_no_leader(one: Cluster) -> None:
    topic = fresh("leaderless")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=1)
    one.sandbox.stop("broker:1")
    try:
        for arguments in (
            ("topics", "enable", topic, "--trim"),
            ("fetch", topic, "-p", "0", "-o", "0"),
        ):
            assert "broker" in refusal(one, *arguments, again=False)
    finally:
        one.sandbox.start("broker:1")


def test_no_service_answers(one: Cluster, free_ports: list[int]) -> None:
    address = f"127.0.0.1:{free_ports[0]}"
    done = one.rlm("status", "--address", address, check=False, again=False)
    assert address in line_of(done)
    assert done.stderr.count("\n") == 1
