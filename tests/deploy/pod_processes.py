"""Containers of rendered pods as processes beside a sandbox: without namespaces, as any user.

Taken as it is in the manifest: the command, the variables, what is mounted where, each setting of
the ConfigMap, the probes with their limits, preStop and the time to end. Mapped, as a process has
them otherwise than a pod:

- paths: the container's `/` is a folder of its own, so that `/etc/rlm/tls` is `FOLDER/etc/rlm/tls`,
  in commands, variables and settings. A claim of a broker's volume is the folder of that broker;
- ports and addresses: each is a loopback port, by a table. One that is not in it is an error;
- settings that name the cluster, as `Surroundings.settings` has them, and what is added to them.

What this cannot show, and `namespaces.py` can: users, read-only folders, names of hosts.
"""

import base64
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import yaml

from tests.deploy.dockerfile import parse
from tests.deploy.manifests import Container, Manifest, config_text
from tests.deploy.volumes import Volumes
from tests.project.tree import ROOT

_LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"
_ADDRESS = re.compile(r"[\w.-]+:\d+")
_SHARED_MEMORY = "/dev/shm"
_LIMIT_S = 240
"""Far more than anything takes that comes at all."""

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a cluster has for its pods, and what is otherwise in the sandbox.

    `secrets`: what `kubectl create secret` and operators make. `claims`: a folder each. `addresses`
    and `settings`: what stands in a ConfigMap, by that address or key. `added`: settings besides.
    """

    secrets: Mapping[str, Files]
    claims: Mapping[str, Path] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a container ended: its status, and when, after its pod was asked to end."""

    status: int
    after_s: float


class PodProcess:
    """One container of a rendered pod; it ends with the `with`, and may be entered again."""

    def __init__(
        self,
        container: Container,
        manifests: tuple[Manifest, ...],
        folder: Path,
        given: Surroundings,
        ports: Mapping[int, int],
    ) -> None:
        """`folder` is this process's own; its path must be short, as sockets are below it.
        `ports`: those of the process, by the container's.
        """
        self.container = container
        self._folder, self._given, self._ports = folder, given, ports
        self._root = folder / "root"
        self._claims = {
            target: given.claims[claim["claimName"]]
            for target, mount in container.mounts.items()
            if (claim := container.volume(mount["name"]).get("persistentVolumeClaim"))
        }
        volumes = Volumes(
            folder=folder / "volumes",
            manifests=(
                self._config_map(manifests),
                *(_secret(*one) for one in given.secrets.items()),
            ),
            claims=given.claims,
        )
        for target, mount in container.mounts.items():
            if target != _SHARED_MEMORY:  # the kernel's own
                here = self._root / target.lstrip("/")
                here.parent.mkdir(parents=True, exist_ok=True)
                here.symlink_to(volumes.source(container, mount))
        self._started: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = self._program(self.container.command)
        with self.log.open("ab") as output:
            self._started = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_LIMIT_S)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._started is not None, "it is not started"
        return self._started

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def said(self) -> str:
        return f"{self.container.pod}/{self.container.name}: {self._text()[-4000:]}"

    def has_said(self, words: str) -> bool:
        return words in self._text()

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def path(self, text: str) -> str:
        """Where a path of the container is."""
        for target, folder in self._claims.items():
            if text == target or text.startswith(f"{target}/"):
                return str(Path(f"{folder}{text.removeprefix(target)}").resolve())
        return f"{self._root}{text}"

    def address(self, port: str | int) -> tuple[str, int]:
        """Of one of its ports, by name or number."""
        number = self.container.ports[port] if isinstance(port, str) else port
        return _LOOPBACK, self._ports[number]

    @property
    def environment(self) -> dict[str, str]:
        """Of image and manifest, and nothing of this process's own. Modules are compiled in the
        image; here they are when they are first imported.
        """
        stage = parse((ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")).stages[-1]
        programs = str(Path(sys.executable).parent)
        image = {
            name: value.replace("/opt/rlm/bin", programs) if name == "PATH" else self._word(value)
            for name, value in stage.environment.items()
            if name != "PYTHONDONTWRITEBYTECODE"
        }
        own = {name: self._word(value) for name, value in self.container.environment.items()}
        temporary = {"TMPDIR": self.path("/tmp")}
        return {**image, **temporary, **own, "PYTHONPATH": str(ROOT)}

    def execute(self, command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """What `kubectl exec` does."""
        return subprocess.run(
            self._program(self.container.program(command)),
            env=self.environment,
            cwd=self._root,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def passes(self, kind: str) -> bool:
        """One probe, asked as the kubelet does; `kind`: startup, readiness or liveness."""
        probe = self.container.manifest[f"{kind}Probe"]
        limit_s = float(probe.get("timeoutSeconds", 1))
        try:
            if "exec" in probe:
                return self.execute(probe["exec"]["command"], limit_s).returncode == 0
            if "tcpSocket" in probe:
                where = self.address(probe["tcpSocket"]["port"])
                socket.create_connection(where, limit_s).close()
                return True
            asked = probe["httpGet"]
            assert asked.get("scheme") == "HTTPS"
            return 200 <= self.status(asked["path"], port=asked["port"], limit_s=limit_s) < 400
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False

    def status(
        self, path: str, token: str = "", *, port: str | int = "http", limit_s: float = 60
    ) -> int:
        """Of a path over HTTPS, whose certificate Kubernetes does not check."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, number = self.address(port)
        asked = http.client.HTTPSConnection(host, number, timeout=limit_s, context=context)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            asked.request("GET", path, headers=headers)
            return asked.getresponse().status
        finally:
            asked.close()

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            assert self.process.poll() is None, f"it ended\n{self.said()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.said()}"
            time.sleep(0.1)

    def wait_for_probes(self) -> None:
        """In the kubelet's order."""
        for kind in ("startup", "readiness", "liveness"):
            self.wait_for(lambda kind=kind: self.passes(kind), f"its {kind} probe")  # type: ignore[misc]

    def end(self) -> End:
        """As the kubelet does: preStop, then SIGTERM, within terminationGracePeriodSeconds."""
        began = time.monotonic()
        grace_s = float(self.container.spec["terminationGracePeriodSeconds"])
        hook = self.container.manifest["lifecycle"]["preStop"]["exec"]["command"]
        done = self.execute(hook, grace_s)
        assert done.returncode == 0, done.stderr
        assert self.process.poll() is None, f"it ended before its time\n{self.said()}"
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(max(0, began + grace_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it would be killed, its time is over\n{self.said()}") from None
        return End(status=status, after_s=time.monotonic() - began)

    def _program(self, command: list[str]) -> list[str]:
        name = shutil.which(command[0], path=self.environment["PATH"])
        assert name is not None, command
        return [name, *map(self._word, command[1:])]

    def _word(self, word: str) -> str:
        return self.path(word) if word.startswith("/") else word

    def _config_map(self, manifests: tuple[Manifest, ...]) -> Manifest:
        """That of the container, as the process gets it. No setting is left out."""
        command = self.container.command
        file = command[command.index("--config") + 1]
        mount = self.container.mounted_at(file)
        assert mount is not None
        name = self.container.volume(mount["name"])["configMap"]["name"]
        content: dict[str, Any] = yaml.safe_load(config_text(self.container, manifests))
        unknown = self._given.settings.keys() - content.keys()
        assert not unknown, f"the manifest does not have {unknown}"
        present = self._given.added.keys() & content.keys()
        assert not present, f"the manifest has {present} itself"
        mapped = {key: self._value(value) for key, value in content.items()}
        settings = {**mapped, **self._given.settings, **self._given.added}
        key = file.removeprefix(f"{mount['mountPath']}/")
        data = {key: yaml.safe_dump(settings, sort_keys=False)}
        return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, str):
            return value
        if value.startswith("unix:"):
            return f"unix:{self.path(value.removeprefix('unix:'))}"
        if _ADDRESS.fullmatch(value):
            host, _, port = value.rpartition(":")
            if host == _EVERYWHERE:
                return f"{_LOOPBACK}:{self._ports[int(port)]}"
            return self._given.addresses[value]
        return self._word(value)


def without_mount(container: Container, path: str) -> Container:
    """The same container, whose manifest has forgotten that mount."""
    assert path in container.mounts
    kept = [one for one in container.manifest["volumeMounts"] if one["mountPath"] != path]
    return replace(container, manifest={**container.manifest, "volumeMounts": kept})


def end_all(*processes: PodProcess) -> list[End]:
    """All at once, as pods of a namespace that is deleted."""
    with ThreadPoolExecutor(max_workers=len(processes)) as pool:
        return list(pool.map(PodProcess.end, processes))


def _secret(name: str, files: Files) -> Manifest:
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}
