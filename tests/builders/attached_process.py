"""`rlm attach` as a process over a local store, without an address of Kafka anywhere."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.readiness import service_is_ready
from rlm_sandbox.spec import loopback

_LIMIT_S = 120
_POLL_S = 0.05
_COMMAND = (sys.executable, "-P", "-m", "rlm.cli.main")


@dataclass(frozen=True, slots=True)
class AttachedReader:
    """One that has read all manifests."""

    address: str
    http: str
    process: "subprocess.Popen[bytes]"
    log: Path
    kafka: str = ""

    def rlm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command that asks this reader."""
        command = [*_COMMAND, *arguments, "--address", self.address]
        return _run(command)

    def health(self) -> dict[str, Any]:
        """What /healthz says."""
        with urllib.request.urlopen(f"http://{self.http}/healthz", timeout=_LIMIT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def attached_settings(folder: Path, store: Path, grpc: int, http: int) -> dict[str, Any]:
    return {
        "state.dir": str(folder / "attached-state"),
        "grpc.listen": loopback(grpc),
        "http.listen": loopback(http),
        "plugin": "local",
        "rsm.config.root": str(store),
    }


@contextmanager
def attached_reader(
    folder: Path,
    store: Path,
    *options: str,
    settings: Mapping[str, Any] = MappingProxyType({}),
    serves_kafka: bool = False,
    is_killed: bool = False,
) -> Iterator[AttachedReader]:
    """Gone afterwards; its end by SIGTERM must be orderly. `settings`: beside those of every one,
    None takes one out. `is_killed`: the caller kills it before its end.
    """
    with PortReservation() as ports:
        grpc, http, kafka = ports.take(), ports.take(), ports.take()
        ports.release(grpc, http, kafka)
    path, log = folder / "attached.yaml", folder / "attached.log"
    given = {**attached_settings(folder, store, grpc, http), **settings}
    if serves_kafka:
        given["proxy.listen"] = loopback(kafka)
    content = {key: value for key, value in given.items() if value is not None}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [*_COMMAND, "attach", "--from-store", "--config", str(path), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while not service_is_ready(http):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(_POLL_S)
        address = loopback(kafka) if serves_kafka else ""
        yield AttachedReader(loopback(grpc), loopback(http), process, log, address)
    finally:
        process.terminate()
        status = process.wait(_LIMIT_S)
    assert status == (-signal.SIGKILL if is_killed else 0), log.read_text()[-2000:]


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(_POLL_S)


def refused(folder: Path, settings: dict[str, Any], *options: str) -> str:
    """The one line with which `rlm attach` refuses to start."""
    path = folder / "refused.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [*_COMMAND, "attach", "--from-store", "--config", str(path), *options]
    done = _run(command)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("rlm: ")]
    return line


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
