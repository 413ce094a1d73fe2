"""The state of a sandbox: checked and prepared before a start, kept between commands.

It has options, ports, cluster id and processes, and is kept in `state.json`, private to the
sandbox; one command at a time holds the lock.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rlm.clock import new_uuid
from rlm_sandbox.files import write_atomically
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.processes import ProcessIdentity
from rlm_sandbox.spec import (
    PORT_NAMES,
    STORE_PORT_NAMES,
    Layout,
    NodePorts,
    ReaderPorts,
    SandboxError,
    SandboxSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxState:
    """All that must survive the command; `processes` maps `broker:1`, `rlm:1`... to identities."""

    spec: SandboxSpec
    cluster_id: str
    quorum_port: int
    ports: dict[int, NodePorts]
    processes: dict[str, ProcessIdentity]
    store_ports: dict[str, int] = field(default_factory=dict)
    reader_ports: dict[int, ReaderPorts] = field(default_factory=dict)

    def with_process(self, name: str, identity: ProcessIdentity) -> Self:
        return replace(self, processes={**self.processes, name: identity})

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "spec": self.spec.to_json(),
            "cluster_id": self.cluster_id,
            "quorum_port": self.quorum_port,
            "ports": {str(node): asdict(ports) for node, ports in self.ports.items()},
            "store_ports": self.store_ports,
            "reader_ports": {str(one): asdict(ports) for one, ports in self.reader_ports.items()},
            "processes": {name: asdict(one) for name, one in self.processes.items()},
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        if content["v"] != 1:
            raise ValueError(f"version {content['v']}")
        return cls(
            spec=SandboxSpec.from_json(content["spec"]),
            cluster_id=content["cluster_id"],
            quorum_port=content["quorum_port"],
            ports={int(node): NodePorts(**ports) for node, ports in content["ports"].items()},
            processes={name: ProcessIdentity(**one) for name, one in content["processes"].items()},
            store_ports=content.get("store_ports", {}),
            reader_ports={
                int(number): ReaderPorts(**ports)
                for number, ports in content.get("reader_ports", {}).items()
            },
        )


def save(layout: Layout, state: SandboxState) -> None:
    write_atomically(layout.state, json.dumps(state.to_json(), indent=1))


def load(layout: Layout) -> SandboxState | None:
    """The state of an existing sandbox, or None when the directory has none."""
    try:
        text = layout.state.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return SandboxState.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{layout.state} cannot be read: {error}") from error


def load_existing(root: Path) -> SandboxState:
    state = load(Layout(root=root))
    if state is None:
        raise SandboxError(f"{root} is not a sandbox (no state.json): start one with sandbox up")
    return state


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Hold the sandbox for one command; raises SandboxError when another command has it."""
    layout.root.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(f"another command is working on the sandbox {layout.root}") from None
        yield


def checked_root(root: Path) -> Path:
    """The directory's absolute path; raises SandboxError when it cannot hold a sandbox."""
    root = root.expanduser().resolve()
    if any(character in str(root) for character in ",\n\r"):
        raise SandboxError(f"--dir {root}: Kafka's log.dirs cannot hold a comma or a line break")
    if root.exists() and not root.is_dir():
        raise SandboxError(f"--dir {root} is not a directory")
    return root


def stopped_state(layout: Layout, spec: SandboxSpec) -> SandboxState | None:
    """The state of an earlier run; SandboxError when it runs or has other options."""
    before = load(layout)
    if before is None:
        strangers = [path.name for path in layout.root.iterdir() if path != layout.lock]
        if strangers:
            raise SandboxError(
                f"--dir {layout.root} is not empty and not a sandbox (it has {strangers[0]})"
            )
        return None
    if any(identity.find() for identity in before.processes.values()):
        raise SandboxError(f"the sandbox {layout.root} is running: take it down first")
    for option in ("brokers", "log_dirs", "store", "kafka_version", "mode", "security"):
        was, now = getattr(before.spec, option), getattr(spec, option)
        if was != now:
            raise SandboxError(
                f"the sandbox {layout.root} was made with {option}={was}, not {now}: "
                "use another --dir, or `down --delete` it first"
            )
    return before


def prepared(
    layout: Layout, spec: SandboxSpec, before: SandboxState | None, ports: PortReservation
) -> SandboxState:
    """The state before anything is started, with every port held."""
    if before is None:
        return SandboxState(
            spec=spec,
            cluster_id=str(new_uuid()),
            quorum_port=ports.take(),
            ports={node: _take_ports(ports) for node in spec.broker_ids},
            processes={},
            store_ports={name: ports.take() for name in STORE_PORT_NAMES[spec.store]},
            reader_ports={number: _take_reader_ports(ports) for number in spec.reader_ids},
        )
    known = [before.quorum_port, *before.store_ports.values()]
    for node_ports in before.ports.values():
        known += [getattr(node_ports, name) for name in PORT_NAMES]
    readers = {one: two for one, two in before.reader_ports.items() if one in spec.reader_ids}
    for reader_ports in readers.values():
        known += [reader_ports.grpc, reader_ports.http]
    for port in known:
        if not ports.hold(port):
            raise SandboxError(
                f"port {port} of the sandbox {layout.root} is taken by another process"
            )
    for number in spec.reader_ids:
        if number not in readers:
            readers[number] = _take_reader_ports(ports)
    return replace(before, spec=spec, processes={}, reader_ports=readers)


def _take_reader_ports(ports: PortReservation) -> ReaderPorts:
    return ReaderPorts(grpc=ports.take(), http=ports.take())


def _take_ports(ports: PortReservation) -> NodePorts:
    return NodePorts(**{name: ports.take() for name in PORT_NAMES})
