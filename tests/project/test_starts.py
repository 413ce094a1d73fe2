"""Every process of ours that does not collect reference cycles while it imports does so afterwards,
and keeps its modules out of that.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rlm.proxy.listening import listen
from rlm.proxy.settings import ProxySettings
from rlm.proxy.tls_files import ProxyTls
from rlm.workers.supervisor import WORKER_COMMAND
from rlm.workers.worker import WorkerSettings
from rlm_sandbox.ports import PortReservation
from tests.project.tree import ROOT

RLM = (sys.executable, "-P", "-m", "rlm.cli.main")
PLUGIN = (sys.executable, "-P", "-m", "rsm_plugins.process.main")
NOBODY = "127.0.0.1:1"
AT_END = """
import atexit, gc, json

def write():
    with open({path!r}, "w") as file:
        json.dump([gc.isenabled(), gc.get_freeze_count() > 10_000], file)

atexit.register(write)
"""
COLLECTS = [True, True]


def environment(folder: Path) -> dict[str, str]:
    """Of a process that writes at its end how it collects."""
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(AT_END.format(path=str(folder / "state")))
    return {**os.environ, "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}"}


def state(folder: Path) -> list[bool]:
    found: list[bool] = json.loads((folder / "state").read_text())
    return found


@contextmanager
def started(
    command: tuple[str, ...], folder: Path, *, first_line: bytes = b"", passed: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=passed,
        env=environment(folder),
    ) as process:
        assert process.stdin is not None
        try:
            process.stdin.write(first_line)
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Until it has printed a line with that."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(b"".join(lines))


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Its standard input stays open: a worker is killed when that ends."""
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    process.wait(240)


@pytest.mark.parametrize(
    "command",
    [
        (*RLM, "status", "--address", NOBODY, "--timeout", "1s"),
        (*PLUGIN, "conformance", "--case", "none-has-this-name"),
    ],
    ids=["rlm", "rsm-plugin"],
)
def test_a_command_collects(command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, timeout=240)
    assert (done.returncode != 0, state(tmp_path)) == (True, COLLECTS), done.stderr


def test_a_service_collects(tmp_path: Path) -> None:
    with PortReservation() as ports:
        serve_until_it_begins(ports.take(), tmp_path)
    assert state(tmp_path) == COLLECTS


def serve_until_it_begins(port: int, tmp_path: Path) -> None:
    config = tmp_path / "rlm.yaml"
    settings = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path / "state-dir"),
        "grpc.listen": f"unix:{tmp_path}/g",
        "http.listen": f"127.0.0.1:{port}",
        "plugin.address": NOBODY,
        "kafka.bootstrap.servers": NOBODY,
    }
    config.write_text(yaml.safe_dump(settings))
    command = (*RLM, "serve", "--role", "reader", "--config", str(config))
    with started(command, tmp_path) as process:
        read_until(process, b"starting")
        terminate(process)


def test_a_plugin_collects(tmp_path: Path) -> None:
    config = tmp_path / "plugin.yaml"
    settings = {"listen": f"unix:{tmp_path}/p", "rsm.config.root": str(tmp_path)}
    config.write_text(yaml.safe_dump(settings))
    with started((*PLUGIN, "serve", "--config", str(config)), tmp_path) as process:
        read_until(process, b"|grpc")
        terminate(process)
    assert state(tmp_path) == COLLECTS


def test_a_proxy_worker_collects(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as (listening,):
        line = settings_of(tmp_path).line()
        descriptor = listening.fileno()
        command = (*WORKER_COMMAND, str(descriptor))
        with started(command, tmp_path, first_line=line, passed=(descriptor,)) as process:
            read_until(process, b"ready")
            with socket.create_connection(listening.getsockname(), timeout=240) as client:
                assert client.recv(1) == b""  # there is no broker behind it
            terminate(process)
    assert state(tmp_path) == COLLECTS


def settings_of(folder: Path) -> WorkerSettings:
    return WorkerSettings(
        worker=0,
        core_socket=str(folder / "core.sock"),
        records_memory_bytes=1 << 20,
        log_level="warning",
        log_format="json",
        proxy=ProxySettings(
            listen_host="127.0.0.1",
            listen_port=0,
            upstream_host="127.0.0.1",
            upstream_port=1,
            max_connections=100,
        ),
        tls=ProxyTls(),
        own_topic_ids=(),
    )
