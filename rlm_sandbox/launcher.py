"""Starts the processes of a sandbox and waits until they answer.

Process names are the targets of the verbs: `controller` or `zookeeper`, `broker:N`, `plugin:N`,
`rlm:N`, `reader:N`, and those of the store's servers (`store:s3`; `store:namenode`,
`store:datanode`).
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import rlm
from rlm.clock import Clock
from rlm.config.environment import variables
from rlm_sandbox import readiness
from rlm_sandbox.kafka_dist import KafkaDist, java_environment, loading_noted
from rlm_sandbox.nodes import node_command
from rlm_sandbox.processes import ProcessIdentity, spawn
from rlm_sandbox.security.acls import create_acls, knows_acls
from rlm_sandbox.security.cluster_security import ClusterSecurity
from rlm_sandbox.services import plugin_command, reader_command, rlm_command
from rlm_sandbox.spec import (
    CONTROLLER,
    CONTROLLER_NODE_ID,
    ZOOKEEPER,
    Layout,
    SandboxError,
    SandboxSpec,
)
from rlm_sandbox.state import SandboxState
from rlm_sandbox.stores.choice import sandbox_store
from rlm_sandbox.stores.contract import SandboxStore

_STORE_SERVER = "store:"
_SERVICES = ("rlm:", "reader:")
_POLL_MS = 100
_LAST_LOG_LINES = 15
_LAST_LOG_BYTES = 8192


def stages(spec: SandboxSpec) -> tuple[tuple[str, ...], ...]:
    """Process names in the order of starting; those of one stage start together.

    The servers of a store come first: plugins find bucket or root made.
    """
    brokers = tuple(f"broker:{node}" for node in spec.broker_ids)
    plugins = tuple(f"plugin:{node}" for node in spec.broker_ids) if spec.services else ()
    services = tuple(f"rlm:{node}" for node in spec.broker_ids) if spec.services else ()
    servers = spec.store_processes
    in_order: tuple[tuple[str, ...], ...]
    if spec.dedicated_controller:
        in_order = ((*servers, spec.quorum), (*plugins, *brokers), services)
    elif servers:
        in_order = ((*servers, *brokers), plugins, services)
    else:
        in_order = ((*plugins, *brokers), services)
    readers = tuple(f"reader:{number}" for number in spec.reader_ids)
    return tuple(stage for stage in (*in_order, readers) if stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The command, the ports and the readiness probe of each process, by name."""

    layout: Layout
    state: SandboxState
    dists: Mapping[str, KafkaDist]
    clock: Clock
    service_variables: Mapping[str, str]
    """Settings that services and readers get in their environment."""
    security: ClusterSecurity | None = None

    @property
    def store(self) -> SandboxStore:
        return sandbox_store(self.layout, self.state)

    def command(self, name: str) -> list[str]:
        if name.startswith(_STORE_SERVER):
            return self.store.command(name)
        kind, node = split_name(name)
        if kind == "plugin":
            return plugin_command(self.layout, node)
        if kind == "rlm":
            return rlm_command(self.layout, node)
        if kind == "reader":
            return reader_command(self.layout, node)
        options = self._class_options(name)
        if self.security is not None:
            options = (*options, *self.security.jvm_options())
        dist = self._dist(node)
        return node_command(dist, self.state.spec, self.layout, node, options=options)

    def _dist(self, node: int) -> KafkaDist:
        return self.dists[self.state.spec.version_of(node)]

    def _class_options(self, name: str) -> tuple[str, ...]:
        """Options of a quick JVM: use the class archive, or note the classes for one."""
        if self.state.spec.jvm != "quick":
            return ()
        options = self._dist(split_name(name)[1]).class_archive.options()
        if name == "broker:1" and not options:
            return loading_noted(self.layout.loaded_classes)
        return options

    def keep_classes(self, progress: Callable[[str], None]) -> None:
        """Make the class archive of what the first broker has loaded, where there is none."""
        loaded, archive = self.layout.loaded_classes, self._dist(1).class_archive
        if not loaded.exists():
            return
        if not archive.path.exists():
            progress("keeping Kafka's classes for faster starts")
            archive.make(loaded)
        loaded.unlink()

    def ports_of(self, name: str) -> tuple[int, ...]:
        """Ports that the process listens on."""
        if name.startswith(_STORE_SERVER):
            return self.store.ports_of(name)
        kind, node = split_name(name)
        if node == CONTROLLER_NODE_ID:
            return (self.state.quorum_port,)
        if kind == "reader":
            own = self.state.reader_ports[node]
            return (own.grpc, own.http)
        ports = self.state.ports[node]
        if kind == "plugin":
            return (ports.plugin,)
        if kind == "rlm":
            return (ports.proxy, ports.grpc, ports.http)
        combined = () if self.state.spec.dedicated_controller else (self.state.quorum_port,)
        tiered = (ports.tiered,) if self.state.spec.has_tiered_listener else ()
        return (ports.direct, *tiered, *combined)

    def start(self, name: str) -> ProcessIdentity:
        log = self.layout.log(name)
        environ = self.environment(name)
        return spawn(self.command(name), log=log, environ=environ, cwd=self.layout.root)

    def environment(self, name: str, known: Mapping[str, str] = os.environ) -> dict[str, str]:
        """That of a process: `known` without settings of services, which would win over the files
        of the sandbox, and with our packages importable from anywhere.
        """
        home = str(Path(rlm.__file__).resolve().parent.parent)
        path = os.pathsep.join([home, known["PYTHONPATH"]]) if known.get("PYTHONPATH") else home
        kept = {key: one for key, one in java_environment(known).items() if key not in variables()}
        return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self._own_variables(name)}

    def _own_variables(self, name: str) -> Mapping[str, str]:
        if name.startswith(_STORE_SERVER):
            return self.store.environ(name)
        return self.service_variables if name.startswith(_SERVICES) else {}

    def is_ready(self, name: str) -> bool:
        if name.startswith(_STORE_SERVER):
            return self.store.is_ready(name)
        kind, node = split_name(name)
        if node == CONTROLLER_NODE_ID:
            return True
        if kind == "reader":
            return readiness.service_is_ready(self.state.reader_ports[node].http)
        ports = self.state.ports[node]
        if kind == "plugin":
            return readiness.plugin_answers(ports.plugin)
        if kind == "rlm":
            return readiness.service_is_ready(ports.http)
        view = self._view(node)
        return view is not None and node in view.broker_ids

    def wait_ready(
        self,
        name: str,
        identity: ProcessIdentity,
        *,
        timeout_ms: int,
        needed: Mapping[str, ProcessIdentity] = MappingProxyType({}),
    ) -> None:
        """Return when the process answers; raises SandboxError with its last log lines if not, and
        with those of a needed process that ended meanwhile.
        """
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        while not self.is_ready(name):
            if identity.wait_gone(_POLL_MS):
                raise SandboxError(f"{name} ended while starting{self._last_log(name)}")
            for other, known in needed.items():
                if known.find() is None:
                    raise SandboxError(f"{other} ended{self._last_log(other)}")
            if self.clock.monotonic_ms() > deadline_ms:
                raise SandboxError(
                    f"{name} is not ready after {timeout_ms // 1000} s{self._last_log(name)}"
                )

    def wait_cluster(self, *, timeout_ms: int) -> None:
        """Return when every broker sees all brokers (each is registered and unfenced)."""
        everyone = frozenset(self.state.spec.broker_ids)
        self._wait_all(
            "broker:1",
            everyone,
            lambda node: self._sees(node, everyone),
            otherwise="the brokers do not find each other",
            timeout_ms=timeout_ms,
        )

    def wait_services(self, *, timeout_ms: int) -> None:
        """Return when every broker's service has heard them all: until then none counts as live,
        and commands say so.
        """
        spec = self.state.spec
        names = {f"rlm:{node}": node for node in spec.broker_ids if spec.services}
        nodes = frozenset(node for name, node in names.items() if name not in spec.without)
        if not nodes:
            return
        self._wait_all(
            f"rlm:{min(nodes)}",
            nodes,
            lambda node: readiness.has_heard(self.state.ports[node].http, nodes),
            otherwise="the services do not hear each other",
            timeout_ms=timeout_ms,
        )

    def _wait_all(
        self,
        name: str,
        of: Iterable[int],
        is_so: Callable[[int], bool],
        *,
        otherwise: str,
        timeout_ms: int,
    ) -> None:
        """Return when it is so of every number; SandboxError with the last log lines of the process
        `name` when that ended, or after too long.
        """
        numbers, identity = tuple(of), self.state.processes[name]
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        while not all(map(is_so, numbers)):
            if identity.wait_gone(_POLL_MS) or self.clock.monotonic_ms() > deadline_ms:
                raise SandboxError(otherwise + self._last_log(name))

    def _sees(self, node: int, everyone: frozenset[int]) -> bool:
        view = self._view(node)
        return view is not None and view.broker_ids == everyone and view.controller_id >= 0

    def _view(self, node: int) -> readiness.ClusterView | None:
        identity = None if self.security is None else self.security.admin
        return readiness.cluster_view(self.state.ports[node].direct, identity)

    def secure_cluster(self, *, timeout_ms: int) -> None:
        """Create the ACLs of a secured cluster, and return when every broker has them."""
        if self.security is None:
            return
        admin = self.security.admin
        ports = [own.direct for own in self.state.ports.values()]
        create_acls(ports[0], admin)
        self._wait_all(
            "broker:1",
            ports,
            lambda port: knows_acls(port, admin),
            otherwise="the brokers do not learn the ACLs",
            timeout_ms=timeout_ms,
        )

    def _last_log(self, name: str) -> str:
        path = self.layout.log(name)
        lines = last_lines(path)
        shown = "".join(f"\n  {line}" for line in lines)
        return f"; the end of {path}:{shown}" if lines else f"; {path} is empty"


def split_name(name: str) -> tuple[str, int]:
    """`broker:2` -> (`broker`, 2); a quorum has a node id of its own."""
    if name in (CONTROLLER, ZOOKEEPER):
        return name, CONTROLLER_NODE_ID
    kind, _, node = name.partition(":")
    return kind, int(node)


def last_lines(path: Path, count: int = _LAST_LOG_LINES) -> tuple[str, ...]:
    """The last lines of a log, read from its end."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _LAST_LOG_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-count:])


def run_stage(
    names: Iterable[str],
    start: Callable[[str], ProcessIdentity],
    wait: Callable[[str, ProcessIdentity], None],
) -> None:
    """Start all, then wait for all."""
    started = [(name, start(name)) for name in names]
    for name, identity in started:
        wait(name, identity)
