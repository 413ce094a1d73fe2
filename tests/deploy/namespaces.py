"""Rendered pods as processes in namespaces of Linux, with nothing of their manifests replaced.

Every container has the paths, mounts, read-only root folder, variables, user, groups and lack of
capabilities of its manifest, and is process 1 of its own; ports, host names and addresses are those
of the manifests too, in a network that has nothing but loopback. All pods are in one network: each
has an address of its own in 127.0.0.0/8, where 0.0.0.0 is heard and 127.0.0.1 is not.

Of an image there is only what `Image` says, over the system folders of this machine. What this
cannot show: that the images have what they need, limits of memory, seccomp, network policies, and
what Kubernetes itself does. Needs root.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.deploy.manifests import Container, Manifest, of_kind
from tests.deploy.volumes import Volumes

_TOOLS = ("chroot", "hostname", "mount", "nsenter", "setpriv", "unshare")
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_ETC = ("group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "passwd", "ssl")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DOMAIN = "svc.cluster.local"
_UNSHARED = ("--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private")
_ALIVE = """\
import fcntl, socket, struct, sys
lo = struct.pack("16sh", b"lo", 0x49)
fcntl.ioctl(socket.socket(), 0x8914, lo)
print("up", flush=True)
sys.stdin.read()
"""
"""Loopback is up, and the network is there until standard input ends."""

_TCP = """\
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
"""
_HTTP = """\
import http.client, ssl, sys
host, port, limit_s, scheme, path = sys.argv[1:]
plain = scheme == "HTTP"
context = None if plain else ssl._create_unverified_context()
more = {} if plain else {"context": context}
kind = http.client.HTTPConnection if plain else http.client.HTTPSConnection
made = kind(host, int(port), timeout=float(limit_s), **more)
made.request("GET", path)
sys.exit(not 200 <= made.getresponse().status < 400)
"""
_ENTER_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What a container gets of its image. `command`: where the manifest has none, or the words
    that its own arguments follow; `paths`: read-only, by the path in the container.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str]
    user: int = 0
    workdir: str = "/"
    paths: Mapping[str, Path] = field(default_factory=dict)


def needs_namespaces() -> None:
    """Skip where pods cannot be run so."""
    has_tools = all(map(shutil.which, _TOOLS))
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or not has_tools:
        pytest.skip("there are no namespaces of Linux to run pods in")
    done = subprocess.run(["unshare", "--net", *_UNSHARED, "true"], check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip("there are no namespaces of Linux to run pods in")


@dataclass(slots=True, kw_only=True)
class Started:
    """A container that runs."""

    container: Container
    process: subprocess.Popen[bytes]
    user: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path

    @property
    def first(self) -> int | None:
        """The process that is 1 in the container; None: it has ended, or the root is not ready."""
        try:
            (found,) = psutil.Process(self.process.pid).children()
            inside, here = (os.stat(root).st_dev for root in (f"/proc/{found.pid}/root/", "/"))
        except (ValueError, OSError, psutil.Error):
            return None
        return int(found.pid) if inside != here else None

    def entered(self, command: list[str]) -> list[str]:
        """The words that run a command inside, as its user and with its variables."""
        inside = ("--net", "--mount", "--uts", "--pid", "--root", "--wd")
        words = ["nsenter", "--target", str(self.first), *inside, *self.user]
        return [*words, *_with(self.environment), *command]

    def execute(self, command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """What `kubectl exec` does."""
        return subprocess.run(
            self.entered(command), capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def kill(self) -> None:
        """With process 1 all others of the container end. It has to be named: the signal that
        --kill-child asks the kernel for is forgotten when a process changes its user.
        """
        inside: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            inside = psutil.Process(self.process.pid).children(recursive=True)
        for one in inside:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        if not inside:
            self.process.kill()
        self.process.wait(60)
        left = psutil.wait_procs(inside, timeout=60)[1]
        assert not left, left

    def said(self) -> str:
        return f"{self.container.pod}/{self.container.name}: {self.log.read_text()[-3000:]}"


class Node:
    """A network, and the containers in it. `with` ends all of them."""

    def __init__(
        self, folder: Path, manifests: tuple[Manifest, ...], images: Mapping[str, Image]
    ) -> None:
        self.volumes = Volumes(folder=folder / "volumes", manifests=manifests)
        self._folder, self._manifests, self._images = folder, manifests, images
        self._addresses: dict[str, str] = {}
        self._holder: subprocess.Popen[bytes] | None = None
        self._started: list[Started] = []

    def __enter__(self) -> "Node":
        holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-I", "-S", "-c", _ALIVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._holder = holder
        assert _output(holder).readline() == b"up\n"
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._started:
            one.kill()
        assert self._holder is not None
        self._holder.communicate(timeout=60)

    def address(self, pod: str) -> str:
        return self._addresses.setdefault(pod, f"127.1.0.{len(self._addresses) + 1}")

    def start(self, container: Container) -> Started:
        """Start a container; it has the name of its pod, and those of the Services."""
        name = f"{container.pod}-{container.name}"
        image = self._images[container.manifest["image"].partition(":")[0]]
        context = {**container.spec["securityContext"], **container.manifest["securityContext"]}
        root = self._folder / f"{name}-root"
        root.mkdir(exist_ok=True)
        environment = {**image.environment, "HOSTNAME": container.pod, **container.environment}
        user = _as_user(context, image)
        script = _root(container, image, self.volumes, root, self._hosts())
        command = container.command
        if "command" not in container.manifest:
            command = [*image.command, *command]
        inside = ["chroot", str(root), *user, *_with(environment)]
        start = [*inside, "sh", "-c", 'cd "$0" && exec "$@"', image.workdir, *command]
        script.append(f"exec {shlex.join(start)}")
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._entered(), "unshare", *_UNSHARED, "sh", "-eu", "-c", "\n".join(script)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        started = Started(
            container=container, process=process, user=user, environment=environment, log=log
        )
        self._started.append(started)
        return started

    def run(self, container: Container) -> None:
        """An init container."""
        started = self.start(container)
        assert started.process.wait(60) == 0, started.said()

    def passes(self, started: Started, probe: Manifest) -> bool:
        """One probe of a container, asked as the kubelet does, at the address of its pod."""
        limit_s = float(probe.get("timeoutSeconds", 1))
        if started.first is None:
            return False
        try:
            if "exec" in probe:
                command = started.entered(probe["exec"]["command"])
            else:
                kind = "tcpSocket" if "tcpSocket" in probe else "httpGet"
                command = self._asked(started.container, probe[kind], limit_s)
            done = subprocess.run(command, capture_output=True, timeout=limit_s + 5, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def hears(self, pod: str, port: int) -> bool:
        """Whether somebody listens there, for those outside of the pod."""
        command = self._python(_TCP, self.address(pod), str(port), "10")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _asked(self, container: Container, where: Manifest, limit_s: float) -> list[str]:
        target = (self.address(container.pod), str(container.ports[where["port"]]), str(limit_s))
        if "path" not in where:
            return self._python(_TCP, *target)
        return self._python(_HTTP, *target, where.get("scheme", "HTTP"), where["path"])

    def _python(self, script: str, *arguments: str) -> list[str]:
        return [*self._entered(), sys.executable, "-I", "-S", "-c", script, *arguments]

    def end(self, pod: str) -> dict[str, "End"]:
        """End a pod as Kubernetes does: preStop of every container, then SIGTERM, all at once."""
        running = [one for one in self._started if one.container.pod == pod and one.first]
        began = time.monotonic()
        with ThreadPoolExecutor(max_workers=len(running)) as pool:
            ends = pool.map(lambda one: _ended(one, began), running)
            return {one.container.name: end for one, end in zip(running, ends, strict=True)}

    def _entered(self) -> list[str]:
        assert self._holder is not None
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net"]

    def _hosts(self) -> str:
        """What the cluster's DNS answers: pods of Services without an address, and Services."""
        lines = ["127.0.0.1 localhost"]
        for service in of_kind(self._manifests, "Service").values():
            name, namespace = (service["metadata"][one] for one in ("name", "namespace"))
            spec = service["spec"]
            for owner in self._manifests:
                if owner["kind"] not in ("StatefulSet", "Deployment"):
                    continue
                labels = owner["spec"]["template"]["metadata"]["labels"]
                if not spec["selector"].items() <= labels.items():
                    continue
                is_set = owner["kind"] == "StatefulSet"
                for number in range(owner["spec"].get("replicas", 1)):
                    pod = owner["metadata"]["name"] + (f"-{number}" if is_set else "")
                    names = [f"{name}.{namespace}.{_DOMAIN}", name]
                    if spec.get("clusterIP") == "None":
                        names = [f"{pod}.{name}.{namespace}.{_DOMAIN}", pod]
                    lines.append(f"{self.address(pod)} {' '.join(names)}")
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a container ended: its status, and when, after the pod was told to end."""

    status: int
    after_s: float


def _ended(one: Started, began: float) -> End:
    limit_s = float(one.container.spec.get("terminationGracePeriodSeconds", 30))
    hook = one.container.manifest.get("lifecycle", {}).get("preStop")
    if hook is not None:
        done = one.execute(hook["exec"]["command"], limit_s)
        assert done.returncode == 0, done.stderr
    first = one.first
    assert first is not None, f"it ended before its time\n{one.said()}"
    os.kill(first, signal.SIGTERM)
    try:
        status = one.process.wait(max(0, began + limit_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it would be killed, as its time is over\n{one.said()}") from None
    return End(status=status, after_s=time.monotonic() - began)


def _as_user(context: Manifest, image: Image) -> tuple[str, ...]:
    """The user and groups of a container, without any capability."""
    assert context["capabilities"] == {"drop": ["ALL"]}
    user = context.get("runAsUser", image.user)
    groups = ("--reuid", str(user), "--regid", str(user), "--groups", str(context["fsGroup"]))
    return ("setpriv", *groups, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


def _with(environment: Mapping[str, str]) -> list[str]:
    return ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]


def _root(
    container: Container, image: Image, volumes: Volumes, root: Path, hosts: str
) -> list[str]:
    """The lines of a shell that make the container's root folder."""
    folder = shlex.quote(str(root))
    lines = [
        f"hostname {container.pod}",
        f"mount -t tmpfs -o mode=755 container {folder}",
        f"cd {folder}",
    ]
    lines.append("mkdir -m 755 dev dev/shm etc proc var var/lib opt run && mkdir -m 1777 tmp")
    lines.append("mount -t proc proc proc")
    lines += [f": > dev/{name} && mount --bind /dev/{name} dev/{name}" for name in _DEVICES]
    lines.append("ln -s /proc/self/fd dev/fd")
    for name in _SYSTEM:
        system = Path("/", name)
        if system.is_symlink():
            lines.append(f"ln -s {os.readlink(system)} {name}")
        elif system.is_dir():
            lines += _bound(system, f"/{name}", is_read_only=True)
    lines += [f"if [ -e /etc/{name} ]; then cp -a /etc/{name} etc; fi" for name in _ETC]
    lines.append(f"printf %s {shlex.quote(hosts)} > etc/hosts")
    for target in sorted(container.mounts, key=len):
        mount = container.mounts[target]
        source = volumes.source(container, mount)
        lines += _bound(source, target, is_read_only=bool(mount.get("readOnly")))
    for target, path in image.paths.items():  # last: a checkout may be below /tmp
        lines += _bound(path, target, is_read_only=True)
    lines.append(f"mkdir -p .{shlex.quote(image.workdir)}")
    if container.manifest["securityContext"].get("readOnlyRootFilesystem"):
        lines.append(f"mount -o remount,ro container {folder}")
    return [*lines, "cd /"]


def _bound(source: Path, target: str, *, is_read_only: bool) -> list[str]:
    """Mount a file or folder at a path below the working directory."""
    here, there = shlex.quote(str(source)), f".{shlex.quote(target)}"
    made = f"mkdir -p {there}" if source.is_dir() else f"mkdir -p $(dirname {there}); : > {there}"
    lines = [made, f"mount --bind {here} {there}"]
    if is_read_only:
        lines.append(f"mount -o remount,bind,ro {there}")
    return lines


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout
