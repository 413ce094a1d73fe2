"""The state of a sandbox between commands: options, ports, cluster id and processes.

Kept in `state.json`, private to the sandbox; one command at a time holds the lock.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rlm_sandbox.files import write_atomically
from rlm_sandbox.processes import ProcessIdentity
from rlm_sandbox.spec import Layout, NodePorts, ReaderPorts, SandboxError, SandboxSpec


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
