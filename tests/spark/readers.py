"""A reader service of a test's own beside a running sandbox, with the settings that it needs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.readiness import service_is_ready
from rlm_sandbox.spec import loopback
from tests.scenarios.cluster import Cluster

_STOP_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Reader:
    """One that answers."""

    endpoint: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """SIGKILL, without any clean-up."""
        self.process.kill()
        self.process.wait(_STOP_LIMIT_S)


@contextmanager
def reader(cluster: Cluster, folder: Path, **more: Any) -> Iterator[Reader]:
    """`more`: settings with underscores for dots, such as `api_token_file`. Gone afterwards."""
    with PortReservation() as ports:
        grpc, http = ports.take(), ports.take()
        ports.release(grpc, http)
    config = {
        "cluster.id": cluster.sandbox.json["cluster_id"],
        "state.dir": str(folder / "reader-state"),
        "grpc.listen": loopback(grpc),
        "grpc.advertised": loopback(grpc),
        "http.listen": loopback(http),
        "kafka.bootstrap.servers": cluster.direct,
        "plugin.address": cluster.sandbox.json["plugin"],
        "heartbeat.interval.ms": 2_000,
        **{name.replace("_", "."): str(value) for name, value in more.items()},
    }
    path = folder / "reader.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = ["-P", "-m", "rlm.cli.main", "serve", "--config", str(path), "--role", "reader"]
    with (folder / "reader.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
    try:
        cluster.wait_for(lambda: _is_ready(process, http, folder), "the reader is ready")
        yield Reader(loopback(grpc), process)
    finally:
        process.terminate()
        process.wait(_STOP_LIMIT_S)


def _is_ready(process: "subprocess.Popen[bytes]", http_port: int, folder: Path) -> bool:
    assert process.poll() is None, (folder / "reader.log").read_text()[-2000:]
    return service_is_ready(http_port)
