"""Configuration files and command lines of the store plugins, services and readers. Pure.

All commands are run as modules of the interpreter that runs the sandbox, so that neither PATH nor
an activated environment matters.
"""

import sys
from typing import Any

import yaml

from rlm.config.service import ReaderConfig, settings
from rlm_sandbox.security.cluster_security import ClusterSecurity
from rlm_sandbox.spec import Layout, NodePorts, SandboxSpec, loopback
from rlm_sandbox.state import SandboxState

# H30: what a test or a first try wants to see within seconds.
QUICK_SERVICE = {
    "access.check.interval.ms": 2_000,
    "heartbeat.interval.ms": 2_000,
    "leadership.poll.interval.ms": 500,
    "remote.delete.delay.ms": 5_000,
    "remote.log.manager.task.interval.ms": 500,
    "retention.check.interval.ms": 5_000,
    "sweep.grace.ms": 10_000,
    "trim.drain.ms": 500,
    "trim.interval.ms": 1_000,
}


def plugin_config(spec: SandboxSpec, ports: NodePorts, store: dict[str, Any]) -> dict[str, Any]:
    """The YAML of `rsm-plugin serve`; `store`: the rows that name the store all plugins share."""
    return {
        "listen": loopback(ports.plugin),
        "plugin": spec.store,
        **store,
        "sweep.grace.ms": QUICK_SERVICE["sweep.grace.ms"],
        **_parsed(spec.overrides_of("store")),
    }


def rlm_config(
    spec: SandboxSpec,
    layout: Layout,
    node_id: int,
    ports: dict[int, NodePorts],
    cluster_id: str,
    security: ClusterSecurity | None = None,
) -> dict[str, Any]:
    """The YAML of `rlm serve` of one broker."""
    own = ports[node_id]
    log_dirs = layout.log_dirs(node_id, spec.log_dirs)
    return {
        "node.id": node_id,
        "cluster.id": cluster_id,
        "log.dirs": [str(path) for path in log_dirs],
        "broker.server.properties": str(layout.server_properties(node_id)),
        "state.dir": str(layout.rlm_state(node_id)),
        "broker.direct.address": loopback(own.direct),
        **_attached(spec, own),
        "proxy.listen": loopback(own.proxy),
        "proxy.advertised": loopback(own.proxy),
        "grpc.listen": loopback(own.grpc),
        "grpc.advertised": loopback(own.grpc),
        "http.listen": loopback(own.http),
        "kafka.bootstrap.servers": ",".join(loopback(one.direct) for one in ports.values()),
        "plugin.address": loopback(own.plugin),
        "rlmm.config.remote.log.metadata.topic.replication.factor": min(3, spec.brokers),
        **_secured(security),
        **({} if security is None else security.proxy_settings()),
        **QUICK_SERVICE,
        **_parsed(spec.overrides_of("rlm")),
    }


def _attached(spec: SandboxSpec, own: NodePorts) -> dict[str, Any]:
    """Which listener of the broker is behind the proxy."""
    if spec.has_tiered_listener:
        return {"broker.tiered.address": loopback(own.tiered)}
    return {
        "proxy.attach": spec.attach,
        "broker.tiered.listener.name": "DIRECT",
        "broker.tiered.address": loopback(own.direct),
    }


def _secured(security: ClusterSecurity | None) -> dict[str, str]:
    return {} if security is None else security.service_settings()


def reader_config(
    layout: Layout, state: SandboxState, number: int, security: ClusterSecurity | None = None
) -> dict[str, Any]:
    """The YAML of `rlm serve --role reader`: it uses the plugin of one of the brokers, and what is
    set for services as far as a reader has it.
    """
    spec, own = state.spec, state.reader_ports[number]
    plugin = state.ports[(number - 1) % spec.brokers + 1].plugin
    allowed = {row.key for row in settings(ReaderConfig).values()}
    given = {**QUICK_SERVICE, **_parsed(spec.overrides_of("rlm"))}
    return {
        "cluster.id": state.cluster_id,
        "state.dir": str(layout.reader_state(number)),
        "grpc.listen": loopback(own.grpc),
        "grpc.advertised": loopback(own.grpc),
        "http.listen": loopback(own.http),
        "kafka.bootstrap.servers": ",".join(loopback(one.direct) for one in state.ports.values()),
        "plugin.address": loopback(plugin),
        **_secured(security),
        **{key: value for key, value in given.items() if key in allowed},
    }


def plugin_command(layout: Layout, node_id: int) -> list[str]:
    return _serve("rsm_plugins.process.main", str(layout.plugin_config(node_id)))


def rlm_command(layout: Layout, node_id: int) -> list[str]:
    return _serve("rlm.cli.main", str(layout.rlm_config(node_id)))


def reader_command(layout: Layout, number: int) -> list[str]:
    return [*_serve("rlm.cli.main", str(layout.reader_config(number))), "--role", "reader"]


def _serve(module: str, config: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, "serve", "--config", config]


def _parsed(overrides: dict[str, str]) -> dict[str, Any]:
    """Values of `--set` read as YAML, so that numbers and booleans keep their types."""
    return {key: yaml.safe_load(value) if value else "" for key, value in overrides.items()}
