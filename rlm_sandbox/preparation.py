"""Checks and decisions of `sandbox up` before anything is started: directory, options, ports."""

from dataclasses import replace
from pathlib import Path

from rlm.clock import new_uuid
from rlm_sandbox import state as states
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.spec import (
    PORT_NAMES,
    STORE_PORT_NAMES,
    Layout,
    NodePorts,
    ReaderPorts,
    SandboxError,
    SandboxSpec,
)
from rlm_sandbox.state import SandboxState


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
    before = states.load(layout)
    if before is None:
        strangers = [path.name for path in layout.root.iterdir() if path != layout.lock]
        if strangers:
            raise SandboxError(
                f"--dir {layout.root} is not empty and not a sandbox (it has {strangers[0]})"
            )
        return None
    if any(identity.find() for identity in before.processes.values()):
        raise SandboxError(f"the sandbox {layout.root} is running: take it down first")
    for option in ("brokers", "log_dirs", "store", "kafka_version"):
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
