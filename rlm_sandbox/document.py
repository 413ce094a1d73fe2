"""sandbox.json: the stable contract of `rlm sandbox up` with tests, demo and users. Pure.

The names and shapes here are promised by the README; add, never rename.
"""

from typing import Any

from rlm_sandbox.nodes import changed_broker_defaults
from rlm_sandbox.security.cluster_security import ClusterSecurity
from rlm_sandbox.spec import Layout, loopback
from rlm_sandbox.state import SandboxState
from rlm_sandbox.stores.choice import sandbox_store


def sandbox_document(
    layout: Layout, state: SandboxState, security: ClusterSecurity | None = None
) -> dict[str, Any]:
    """The JSON document that is kept in `D/sandbox.json`; `up` prints it last, without passwords.

    A sandbox in plaintext has no `security` in it.
    """
    nodes = state.spec.broker_ids
    return {
        "bootstrap": ",".join(loopback(state.ports[node].proxy) for node in nodes),
        "direct_bootstrap": ",".join(loopback(state.ports[node].direct) for node in nodes),
        "brokers": [_broker(layout, state, node) for node in nodes],
        "readers": [_reader(state, number) for number in state.spec.reader_ids],
        "store": _store(layout, state),
        **({} if security is None else {"security": security.document()}),
        "plugin": loopback(state.ports[nodes[0]].plugin),
        "changed_broker_defaults": changed_broker_defaults(state.spec),
        "cluster_id": state.cluster_id,
        "kafka_version": state.spec.kafka_version,
        "dir": str(layout.root),
    }


def _broker(layout: Layout, state: SandboxState, node: int) -> dict[str, Any]:
    ports = state.ports[node]
    return {
        "id": node,
        "direct": loopback(ports.direct),
        "proxy": loopback(ports.proxy),
        "grpc": loopback(ports.grpc),
        "http": loopback(ports.http),
        "log_dirs": [str(path) for path in layout.log_dirs(node, state.spec.log_dirs)],
        "broker_pid": _pid(state, f"broker:{node}"),
        "rlm_pid": _pid(state, f"rlm:{node}"),
        "plugin": loopback(ports.plugin),
        "plugin_pid": _pid(state, f"plugin:{node}"),
    }


def _reader(state: SandboxState, number: int) -> dict[str, Any]:
    ports = state.reader_ports[number]
    return {
        "grpc": loopback(ports.grpc),
        "http": loopback(ports.http),
        "pid": _pid(state, f"reader:{number}"),
    }


def _store(layout: Layout, state: SandboxState) -> dict[str, Any]:
    """`pids` are those of the store's servers, in the order of starting; none for a local one."""
    pids = [_pid(state, name) for name in state.spec.store_processes]
    return {"kind": state.spec.store, **sandbox_store(layout, state).document(), "pids": pids}


def _pid(state: SandboxState, name: str) -> int | None:
    identity = state.processes.get(name)
    return identity.pid if identity else None


def without_passwords(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it may be shown: output of commands is kept in logs of builds."""
    return {
        name: without_passwords(value) if isinstance(value, dict) else value
        for name, value in document.items()
        if name != "password"
    }
