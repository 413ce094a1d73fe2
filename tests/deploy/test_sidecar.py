"""The sidecar: broker and service of a pod agree, and its containers run as processes."""

import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm.config.broker_files import advertised_address, broker_identity
from rlm.config.loader import from_mapping
from rlm_sandbox.sandbox import Sandbox
from tests.builders.certificates import Authority
from tests.deploy.manifests import Container, config_text, containers, rendered

NAME = "base/sidecar"
READY_SECONDS = 180
TOKEN = "of-the-monitoring"


def of_pod(name: str, manifests_of: str = NAME) -> dict[str, Container]:
    """The containers of a pod, by name."""
    return {one.name: one for one in containers(rendered(manifests_of)) if one.pod == name}


@pytest.mark.parametrize("manifests_of", [NAME, "overlays/kind"])
def test_each_service_fits_the_broker_in_its_pod(manifests_of: str) -> None:
    manifests = rendered(manifests_of)
    pods = {one.pod for one in containers(manifests) if one.name == "rlm"}
    assert len(pods) == (1 if manifests_of == "overlays/kind" else 3)
    for pod in pods:
        found = of_pod(pod, manifests_of)
        environment = found["kafka"].environment
        properties = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in environment.items()
        }
        broker = broker_identity(properties)
        config = from_mapping(yaml.safe_load(config_text(found["rlm"], manifests)), {})
        assert (config.node_id, config.log_dirs) == (broker.node_id, broker.log_dirs)
        assert config.cluster_id == environment["CLUSTER_ID"]
        assert config.broker_direct_address == broker.listeners["INTERNAL"]
        assert config.broker_tiered_address == broker.listeners["TIERED"]
        assert config.broker_tiered_address.is_private
        advertised = properties["advertised.listeners"]
        assert advertised_address("TIERED", advertised) == config.proxy_advertised
        assert advertised_address("INTERNAL", advertised) in config.kafka_bootstrap_servers
        voters = properties["controller.quorum.voters"].split(",")
        assert len(voters) == len(pods) == len(config.kafka_bootstrap_servers)
        assert f"{broker.node_id}@{pod}." in properties["controller.quorum.voters"]
        assert [str(one.address) for one in config.stores] == [
            f"unix:{yaml.safe_load(config_text(found['plugin'], manifests))['listen'][5:]}"
        ]


def test_the_proxy_outlives_the_hand_over_and_the_plugin_the_last_copies() -> None:
    found = of_pod("kafka-0")
    waits_s = {
        name: int(found[name].manifest["lifecycle"]["preStop"]["exec"]["command"][1])
        for name in ("rlm", "plugin")
    }
    config = from_mapping(yaml.safe_load(config_text(found["rlm"], rendered(NAME))), {})
    drained_s = waits_s["rlm"] + config.shutdown_timeout_ms / 1_000
    assert drained_s <= waits_s["plugin"] < found["rlm"].spec["terminationGracePeriodSeconds"]


class Pod:
    """The rlm and plugin containers of kafka-0 as processes, beside the broker of a sandbox."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.containers = of_pod("kafka-0")
        self._sandbox, self._folder = sandbox, folder
        authority = Authority(folder, "of-the-pod")
        shown = authority.issue("rlm", "127.0.0.1")
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        given = yaml.safe_load(sandbox.layout.rlm_config(1).read_text(encoding="utf-8"))
        store = yaml.safe_load(sandbox.layout.plugin_config(1).read_text(encoding="utf-8"))
        socket = f"unix:{folder}/plugin.sock"
        self.http_port = int(given["http.listen"].rpartition(":")[2])
        self._replaced: dict[str, dict[str, Any]] = {
            "plugin": {
                **{key: store[key] for key in store if key.startswith("rsm.") or key == "plugin"},
                "listen": socket,
            },
            "rlm": {
                **{key: given[key] for key in _OF_THE_SANDBOX},
                **{key: str(shown.cert_file) for key in _KEYS if key.endswith("cert.file")},
                **{key: str(shown.key_file) for key in _KEYS if key.endswith("key.file")},
                "grpc.tls.ca.file": str(authority.ca_file),
                "api.token.file": str(folder / "token"),
                "http.token.file": str(folder / "token"),
                "state.dir": str(folder / "state"),
                "plugin.address": socket,
                "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            },
        }

    def config_file(self, name: str) -> Path:
        """The ConfigMap's settings; none is left out, only paths and addresses are others. Written
        once: a process may be reading it.
        """
        path = self._folder / f"{name}.yaml"
        if path.exists():
            return path
        content = yaml.safe_load(config_text(self.containers[name], rendered(NAME)))
        own = {key for key in content if not key.startswith("rsm.")}
        replaced = self._replaced[name]
        assert own - replaced.keys() <= {"shutdown.timeout.ms"}
        kept = {key: value for key, value in content.items() if key in own}
        path.write_text(yaml.safe_dump({**kept, **replaced}), encoding="utf-8")
        return path

    def command(self, name: str, words: list[str]) -> list[str]:
        """The command of the container or a probe, with this interpreter and that file."""
        program = Path(sys.executable).parent / words[0]
        file = self.config_file(name)
        return [
            str(program),
            *(str(file) if word.startswith("/etc/rlm/") else word for word in words[1:]),
        ]

    @contextmanager
    def running(self) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
        started = {}
        try:
            for name in ("plugin", "rlm"):
                log = (self._folder / f"{name}.log").open("wb")
                command = self.command(name, self.containers[name].command)
                with log:
                    started[name] = subprocess.Popen(command, stdout=log, stderr=log)
            yield started
        finally:
            for one in started.values():
                one.terminate()
            for one in started.values():
                one.wait(120)

    def is_started(self) -> bool:
        """The startup probes of both containers."""
        socket = self.containers["plugin"].manifest["startupProbe"]["exec"]["command"]
        assert socket[:2] == ["test", "-S"]
        port = self.containers["rlm"].manifest["startupProbe"]["tcpSocket"]["port"]
        assert port == "proxy"
        file = self.containers["rlm"].command[-1]
        command = self.command("rlm", ["rlm", "probe", "startup", "--config", file])
        has_socket = (self._folder / "plugin.sock").is_socket()
        return has_socket and subprocess.run(command, check=False, timeout=120).returncode == 0

    def is_ready(self) -> bool:
        container = self.containers["rlm"]
        words = container.program(container.manifest["readinessProbe"]["exec"]["command"])
        done = subprocess.run(self.command("rlm", words), check=False, timeout=120)
        return done.returncode == 0

    def status(self, path: str, token: str = "") -> int:
        """Of a path over HTTPS, whose certificate Kubernetes does not check."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{self.http_port}{path}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def is_alive(self) -> bool:
        probe = self.containers["rlm"].manifest["livenessProbe"]["httpGet"]
        assert (probe["port"], probe["scheme"]) == ("http", "HTTPS")
        return self.status(probe["path"]) == 200


_KEYS = (
    *("grpc.tls.cert.file", "grpc.tls.key.file", "http.tls.cert.file", "http.tls.key.file"),
    *("proxy.tls.cert.file", "proxy.tls.key.file"),
)
_OF_THE_SANDBOX = (
    *("node.id", "cluster.id", "log.dirs", "broker.direct.address", "broker.tiered.address"),
    *("kafka.bootstrap.servers", "proxy.listen", "proxy.advertised"),
    *("grpc.listen", "grpc.advertised", "http.listen"),
)


def wait_for(holds: Callable[[], bool], what: str, logs: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        said = "\n".join(path.read_text()[-2000:] for path in logs.glob("*.log"))
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{said}"
        time.sleep(0.2)


@pytest.fixture
def pod(sandbox: Sandbox) -> Iterator[Pod]:
    """In the place of the sandbox's own service. The path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="pod-") as folder:
        sandbox.stop("rlm:1")
        try:
            yield Pod(sandbox, Path(folder))
        finally:
            sandbox.start("rlm:1")


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_its_containers_run_as_processes_and_answer_their_probes(
    pod: Pod, sandbox: Sandbox
) -> None:
    logs = Path(pod.config_file("rlm")).parent
    assert not pod.is_ready()
    with pod.running() as processes:
        wait_for(pod.is_started, "the startup probes", logs)
        wait_for(pod.is_ready, "the readiness probe", logs)
        wait_for(pod.is_alive, "the liveness probe", logs)
        wait_for(lambda: pod.status("/readyz") == 200, "ledger and settings", logs)
        assert (pod.status("/metrics"), pod.status("/metrics", TOKEN)) == (401, 200)
        sandbox.pause("broker:1")
        try:
            wait_for(lambda: not pod.is_ready(), "a probe that notices the broker", logs)
            assert pod.is_alive(), "a broker that hangs is no reason to restart the service"
        finally:
            sandbox.resume("broker:1")
        wait_for(pod.is_ready, "bytes that pass again", logs)
        began = time.monotonic()
        processes["rlm"].terminate()
        assert processes["rlm"].wait(120) == 0
        drained_s = time.monotonic() - began
        stop = pod.containers["rlm"].manifest["lifecycle"]["preStop"]["exec"]["command"]
        grace_s = pod.containers["rlm"].spec["terminationGracePeriodSeconds"]
        assert drained_s + int(stop[1]) < grace_s
