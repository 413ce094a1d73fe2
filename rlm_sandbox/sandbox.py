"""The sandbox: starts and stops all of it, and kills, starts or pauses single processes of it.

The command line (`rlm_sandbox/command.py`), tests, demo and bench all use `Sandbox`. Processes are
detached and known through `state.json`, so any later command or process can act on them. `store`
means all servers of the store, each of which also has a name of its own (`store:s3`). A local store
has no process: stopping (or killing) it moves its directory away, so that every access fails at
once; pausing it stops the plugins, the only way to it, so that every access hangs as on a dead
network disk.
"""

import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import yaml

from kip405.checkpoints import parse_meta_properties
from rlm.clock import Clock, SystemClock
from rlm_sandbox import state as states
from rlm_sandbox.document import sandbox_document
from rlm_sandbox.files import write_atomically
from rlm_sandbox.kafka_dist import KafkaDist, resolve_kafka
from rlm_sandbox.launcher import Launcher, run_stage, stages
from rlm_sandbox.nodes import format_storage, write_node_files
from rlm_sandbox.ports import PortReservation, port_is_free
from rlm_sandbox.processes import ProcessIdentity, kill_group, pause_group, stop_all
from rlm_sandbox.security.cluster_security import prepare_security, security_of
from rlm_sandbox.services import plugin_config, reader_config, rlm_config
from rlm_sandbox.spec import Layout, SandboxError, SandboxSpec
from rlm_sandbox.state import SandboxState, checked_root, locked, prepared, stopped_state
from rlm_sandbox.stores.choice import sandbox_store

STORE = "store"
_STOP_GRACE_MS, _DOWN_GRACE_MS = 60_000, 20_000
"""Who stops one process wants it to end well, be the machine slow; who takes all down, an end."""
_READY_TIMEOUT_MS = 120_000
_UP_TIMEOUT_MS = 180_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """The five verbs; each holds the sandbox's lock while it works."""

    layout: Layout
    dists: Mapping[str, KafkaDist]
    clock: Clock
    service_variables: Mapping[str, str]

    def start(self, target: str, *, wait: bool) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if _is_directory(state, target):
                self._bring_store_back()
                return
            names = _stopped(state, target)
            for name in names:
                state = self._start_one(state, name)
        if wait:
            launcher = self._launcher(state)
            for name in names:
                identity = state.processes[name]
                launcher.wait_ready(name, identity, timeout_ms=_READY_TIMEOUT_MS)

    def _start_one(self, state: SandboxState, name: str) -> SandboxState:
        launcher = self._launcher(state)
        for port in launcher.ports_of(name):
            if not port_is_free(port):
                raise SandboxError(f"{name}: port {port} is taken by another process")
        if name.startswith("broker:"):
            format_storage(self.dists, self.layout, state, security_of(self.layout, state.spec))
        state = state.with_process(name, launcher.start(name))
        self._remember(state)
        return state

    def stop(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if _is_directory(state, target):
                self._move_store_away()
            else:
                stop_all(_identities(state, target), grace_ms=_STOP_GRACE_MS, clock=self.clock)

    def kill(self, target: str) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            if _is_directory(state, target):
                self._move_store_away()
            else:
                for identity in _identities(state, target):
                    kill_group(identity)

    def pause(self, target: str) -> None:
        self._each(target, pause_group)

    def resume(self, target: str) -> None:
        self._each(target, lambda identity: identity.signal_group(signal.SIGCONT))

    def _each(self, target: str, act: Callable[[ProcessIdentity], bool]) -> None:
        with locked(self.layout):
            state = self._state_for(target)
            for name, identity in _signalled(state, target):
                if not act(identity):
                    raise SandboxError(f"{name} is not running")

    def _state_for(self, target: str) -> SandboxState:
        state = states.load_existing(self.layout.root)
        known = [name for stage in stages(state.spec) for name in stage]
        if state.spec.services:
            known.append(STORE)
        if target not in known:
            raise SandboxError(f"{target}: no process of this sandbox; it has {', '.join(known)}")
        return state

    def _launcher(self, state: SandboxState) -> Launcher:
        return _launcher(self.layout, state, self.dists, self.clock, self.service_variables)

    def _remember(self, state: SandboxState) -> None:
        states.save(self.layout, state)
        _write_document(self.layout, state)

    def _move_store_away(self) -> None:
        if self.layout.store.exists():
            self.layout.store.rename(self.layout.store_away)

    def _bring_store_back(self) -> None:
        if not self.layout.store_away.exists():
            raise SandboxError("the store is not stopped")
        if self.layout.store.exists():
            if any(self.layout.store.iterdir()):
                raise SandboxError(f"{self.layout.store} was recreated while the store was away")
            self.layout.store.rmdir()
        self.layout.store_away.rename(self.layout.store)


def _launcher(
    layout: Layout,
    state: SandboxState,
    dists: Mapping[str, KafkaDist],
    clock: Clock,
    service_variables: Mapping[str, str],
) -> Launcher:
    return Launcher(
        layout=layout,
        state=state,
        dists=dists,
        clock=clock,
        security=security_of(layout, state.spec),
        service_variables=service_variables,
    )


def _write_document(layout: Layout, state: SandboxState) -> None:
    security = security_of(layout, state.spec)
    document = sandbox_document(layout, state, security)
    text = json.dumps(document, indent=2) + "\n"
    write_atomically(layout.document, text, private=security is not None)


def _is_directory(state: SandboxState, target: str) -> bool:
    """Whether the target is a store without processes."""
    return target == STORE and not state.spec.store_processes


def _names(state: SandboxState, target: str) -> tuple[str, ...]:
    return state.spec.store_processes if target == STORE else (target,)


def _identities(state: SandboxState, target: str) -> list[ProcessIdentity]:
    return [state.processes[name] for name in _names(state, target) if name in state.processes]


def _stopped(state: SandboxState, target: str) -> list[str]:
    """The target's processes that do not run; SandboxError when all of them do, or are paused."""
    names = _names(state, target)
    states_now = {
        name: state.processes[name].state() if name in state.processes else "stopped"
        for name in names
    }
    stopped = [name for name, now in states_now.items() if now == "stopped"]
    if not stopped:
        name, now = next(iter(states_now.items()))
        raise SandboxError(f"{name} is {now} (pid {state.processes[name].pid})")
    return stopped


def _signalled(state: SandboxState, target: str) -> list[tuple[str, ProcessIdentity]]:
    """Processes that pause and resume mean; a local store is reached through the plugins only."""
    if not _is_directory(state, target):
        known = [(name, state.processes.get(name)) for name in _names(state, target)]
        missing = [name for name, identity in known if identity is None]
        if missing:
            raise SandboxError(f"{missing[0]} is not running")
        return [(name, identity) for name, identity in known if identity is not None]
    plugins = [one for one in state.processes.items() if one[0].startswith("plugin:")]
    return [(name, identity) for name, identity in plugins if identity.find() is not None]


Progress = Callable[[str], None]


def _silent(_line: str) -> None:
    """Progress for callers that show none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One line of `rlm sandbox status`."""

    name: str
    state: str
    pid: int | None
    ports: tuple[int, ...]
    log: Path


class Sandbox:
    """A sandbox in a directory; made by `up` or, for one that runs already, by `open`."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        dists: Mapping[str, KafkaDist],
        service_variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.layout = Layout(root=root)
        self._dists = dists
        self._service_variables = service_variables
        self._clock = clock
        self._ports = PortReservation()

    @classmethod
    def up(
        cls,
        root: Path,
        spec: SandboxSpec,
        *,
        progress: Progress = _silent,
        clock: Clock | None = None,
        timeout_ms: int = _UP_TIMEOUT_MS,
        service_variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Start everything and return when it is healthy; takes down what it started otherwise.

        A directory that was `down` before comes up again with its data and ports. No process gets
        this process's variables of settings; services and readers get `service_variables`.
        """
        root = checked_root(root)
        layout = Layout(root=root)
        with locked(layout):
            before = stopped_state(layout, spec)
            dists = _resolve(spec, progress)
            clock = clock or SystemClock()
            sandbox = cls(root, clock=clock, dists=dists, service_variables=service_variables)
            with contextlib.ExitStack() as undo:
                undo.callback(sandbox._ports.release_all)
                state = prepared(layout, spec, before, sandbox._ports)
                if spec.services:
                    sandbox_store(layout, state).resolve(progress)
                states.save(layout, state)
                try:
                    progress("formatting the storage")
                    prepare_security(layout, spec, now_ms=sandbox._clock.now_ms())
                    sandbox._write_files(state)
                    format_storage(dists, layout, state, security_of(layout, spec))
                    sandbox._start_all(state, progress, timeout_ms)
                except BaseException:
                    progress("taking down what was started")
                    sandbox._stop_all()
                    raise
                sandbox._ports.lend_all()  # those of processes that it does not have, too
                undo.pop_all()
        return sandbox

    @classmethod
    def open(cls, root: Path, *, clock: Clock | None = None) -> Self:
        """An existing sandbox, running or not; raises SandboxError when there is none."""
        root = root.expanduser().resolve()
        spec = states.load_existing(root).spec
        return cls(root, clock=clock or SystemClock(), dists=_resolve(spec, _silent))

    @property
    def state(self) -> SandboxState:
        return states.load_existing(self.layout.root)

    @property
    def dist(self) -> KafkaDist:
        """Kafka of the first broker's version, for its tools."""
        return next(iter(self._dists.values()))

    @property
    def json(self) -> dict[str, Any]:
        """The document of sandbox.json."""
        content: dict[str, Any] = json.loads(self.layout.document.read_text(encoding="utf-8"))
        return content

    @property
    def bootstrap(self) -> str:
        """Proxy addresses."""
        return str(self.json["bootstrap"])

    @property
    def direct_bootstrap(self) -> str:
        """Broker addresses without proxy."""
        return str(self.json["direct_bootstrap"])

    def log_dirs(self, node_id: int = 1) -> tuple[Path, ...]:
        return self.layout.log_dirs(node_id, self.state.spec.log_dirs)

    def start(self, target: str, *, wait: bool = True) -> None:
        """Start a stopped `broker:N`, `rlm:N`, `plugin:N`, `reader:N`, `controller`, `store:NAME`
        (`store:s3`) or the whole `store`.
        """
        self._verbs().start(target, wait=wait)

    def stop(self, target: str) -> None:
        """Ask it to end (SIGTERM), and make it end after a while."""
        self._verbs().stop(target)

    def kill(self, target: str) -> None:
        """SIGKILL it and all its children."""
        self._verbs().kill(target)

    def pause(self, target: str) -> None:
        """SIGSTOP it and all its children."""
        self._verbs().pause(target)

    def resume(self, target: str) -> None:
        self._verbs().resume(target)

    def status(self) -> tuple[ProcessStatus, ...]:
        """State of every process that belongs to the sandbox."""
        state = self.state
        launcher = self._launcher(state)
        rows = []
        for name in (name for stage in stages(state.spec) for name in stage):
            identity = state.processes.get(name)
            now = identity.state() if identity else "stopped"
            rows.append(
                ProcessStatus(
                    name=name,
                    state=now,
                    pid=identity.pid if identity and now != "stopped" else None,
                    ports=launcher.ports_of(name),
                    log=self.layout.log(name),
                )
            )
        if state.spec.services and not state.spec.store_processes:
            rows.append(self._store_status())
        return tuple(rows)

    def _store_status(self) -> ProcessStatus:
        """The local store has no process and no log; its directory is shown for both."""
        store = self.layout.store
        now = "running" if store.exists() else "stopped"
        return ProcessStatus(name=STORE, state=now, pid=None, ports=(), log=store)

    def down(self, *, delete: bool = False) -> None:
        """Stop all processes; with `delete` remove the directory too."""
        take_down(self.layout.root, delete=delete, clock=self._clock)
        self._ports.release_all()

    def _verbs(self) -> Verbs:
        return Verbs(
            layout=self.layout,
            dists=self._dists,
            clock=self._clock,
            service_variables=self._service_variables,
        )

    def _launcher(self, state: SandboxState) -> Launcher:
        return _launcher(self.layout, state, self._dists, self._clock, self._service_variables)

    def _write_files(self, state: SandboxState) -> None:
        security = security_of(self.layout, state.spec)
        write_node_files(self.layout, state, security)
        if not state.spec.services:
            return
        store = sandbox_store(self.layout, state)
        store.prepare()
        for node_id, ports in state.ports.items():
            plugin = plugin_config(state.spec, ports, store.plugin_settings())
            service = rlm_config(
                state.spec, self.layout, node_id, state.ports, state.cluster_id, security
            )
            write_atomically(self.layout.plugin_config(node_id), _yaml(plugin))
            write_atomically(self.layout.rlm_config(node_id), _yaml(service))
        for number in state.spec.reader_ids:
            reader = reader_config(self.layout, state, number, security)
            write_atomically(self.layout.reader_config(number), _yaml(reader))

    def _start_all(self, state: SandboxState, progress: Progress, timeout_ms: int) -> None:
        def start(name: str) -> ProcessIdentity:
            nonlocal state
            progress(f"starting {name}")
            launcher = self._launcher(state)
            self._ports.lend(*launcher.ports_of(name))
            identity = launcher.start(name)
            state = state.with_process(name, identity)
            states.save(self.layout, state)
            return identity

        def wait(name: str, identity: ProcessIdentity) -> None:
            progress(f"waiting for {name}")
            self._launcher(state).wait_ready(
                name, identity, timeout_ms=timeout_ms, needed=state.processes
            )

        for stage in stages(state.spec):
            run_stage([name for name in stage if name not in state.spec.without], start, wait)
            if any(name in state.spec.store_processes for name in stage):
                sandbox_store(self.layout, state).create()
            if "broker:1" in stage:
                self._launcher(state).wait_cluster(timeout_ms=timeout_ms)
                self._launcher(state).secure_cluster(timeout_ms=timeout_ms)
                if state.spec.has_zookeeper:
                    state = self._with_cluster_id_of_the_disks(state)
        self._launcher(state).wait_services(timeout_ms=timeout_ms)
        self._launcher(state).keep_classes(progress)
        _write_document(self.layout, state)

    def _with_cluster_id_of_the_disks(self, state: SandboxState) -> SandboxState:
        """With ZooKeeper it is the first broker that makes up the cluster id."""
        text = (self.log_dirs()[0] / "meta.properties").read_bytes()
        cluster_id = parse_meta_properties(text).cluster_id
        if cluster_id is None:
            raise SandboxError(f"{self.log_dirs()[0]}: broker 1 wrote no cluster id")
        state = replace(state, cluster_id=cluster_id)
        states.save(self.layout, state)
        self._write_files(state)
        return state

    def _stop_all(self) -> None:
        _stop_in_order(self.state, self._clock)


def take_down(root: Path, *, delete: bool = False, clock: Clock | None = None) -> None:
    """`rlm sandbox down`: needs neither Kafka's jars nor Java."""
    root = root.expanduser().resolve()
    states.load_existing(root)
    layout = Layout(root=root)
    with locked(layout):
        _stop_in_order(states.load_existing(root), clock or SystemClock())
    if delete:
        shutil.rmtree(root)


def _stop_in_order(state: SandboxState, clock: Clock) -> None:
    """Services first, the controller last, so that brokers can leave the cluster in order."""
    for stage in reversed(stages(state.spec)):
        living = [state.processes[name] for name in stage if name in state.processes]
        stop_all(living, grace_ms=_DOWN_GRACE_MS, clock=clock)


def _resolve(spec: SandboxSpec, progress: Progress) -> dict[str, KafkaDist]:
    """Kafka by version, that of the first broker first."""
    return {
        version: resolve_kafka(
            version=version,
            native_tiering=spec.native_tiering,
            kafka_home=Path(spec.kafka_home) if spec.kafka_home else None,
            progress=progress,
        )
        for version in spec.kafka_versions
    }


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
