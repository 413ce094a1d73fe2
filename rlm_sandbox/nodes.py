"""Kafka's nodes: server.properties, log settings, formatted storage, and their command line.

Listeners: DIRECT (advertised at itself, between brokers and for the service), TIERED (bound to
loopback, advertised at the proxy) and CONTROLLER. TIERED is never the inter-broker listener (H21),
and is missing where the proxies rewrite addresses. What `--security` makes of them is
`security/listeners.py`.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlm_sandbox.files import encode_properties, write_atomically
from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.security.cluster_security import ClusterSecurity
from rlm_sandbox.security.listeners import protocol_map
from rlm_sandbox.spec import (
    CONTROLLER_NODE_ID,
    PLAINTEXT,
    Layout,
    NodePorts,
    SandboxError,
    SandboxSpec,
    is_before_4,
    loopback,
)
from rlm_sandbox.state import SandboxState

# H30: what a short run needs to see within seconds, and what keeps three JVMs on a laptop small.
_QUICK_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "8",
}

_NATIVE_TIERING = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": (
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    ),
    "remote.log.metadata.manager.listener.name": "DIRECT",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
}

LOG4J = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.target=SYSTEM_OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""

RELOAD4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

_ZOOKEEPER_TICK_MS = 1_000


def changed_broker_defaults(spec: SandboxSpec) -> dict[str, str]:
    """Broker settings that differ from Kafka's defaults, addresses and paths aside (H30)."""
    factor = str(min(3, spec.brokers))
    changed = {
        **_QUICK_DEFAULTS,
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": str(min(2, spec.brokers)),
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": str(min(2, spec.brokers)),
    }
    if spec.native_tiering:
        changed |= _NATIVE_TIERING
        changed["rlmm.config.remote.log.metadata.topic.replication.factor"] = factor
        changed["rlmm.config.remote.log.metadata.topic.min.isr"] = str(min(2, spec.brokers))
    return dict(sorted((changed | spec.overrides_of("broker")).items()))


def broker_properties(
    spec: SandboxSpec,
    layout: Layout,
    node_id: int,
    ports: Mapping[int, NodePorts],
    quorum: int,
    security: ClusterSecurity | None = None,
) -> dict[str, str]:
    """All of server.properties of a broker; `quorum` is the port of the controller listener."""
    own = ports[node_id]
    roles = "broker" if spec.dedicated_controller else "broker,controller"
    listeners = advertised = [f"DIRECT://{loopback(own.direct)}"]
    if spec.has_tiered_listener:
        advertised = [*listeners, f"TIERED://{loopback(own.proxy)}"]
        listeners = [*listeners, f"TIERED://{loopback(own.tiered)}"]
    if not spec.dedicated_controller:
        listeners = [*listeners, f"CONTROLLER://{loopback(quorum)}"]
    log_dirs = layout.log_dirs(node_id, spec.log_dirs)
    if spec.has_zookeeper:
        cluster = _with_zookeeper(node_id, quorum)
    else:
        cluster = {**_common_properties(spec, layout, node_id, quorum), "process.roles": roles}
    properties = {
        **cluster,
        "broker.rack": f"rack-{node_id}",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(advertised),
        "inter.broker.listener.name": "DIRECT",
        "log.dirs": ",".join(str(path) for path in log_dirs),
    }
    if spec.native_tiering:
        properties["rsm.config.dir"] = str(layout.native_store)
    return properties | _secured(security) | changed_broker_defaults(spec)


def _secured(security: ClusterSecurity | None) -> dict[str, str]:
    return {} if security is None else security.node_properties()


def controller_properties(
    spec: SandboxSpec, layout: Layout, quorum: int, security: ClusterSecurity | None = None
) -> dict[str, str]:
    """server.properties of the controller that three brokers share."""
    node_id = CONTROLLER_NODE_ID
    return {
        **_common_properties(spec, layout, node_id, quorum),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{loopback(quorum)}",
        "log.dirs": str(layout.metadata_dir(node_id)),
        **_secured(security),
    } | changed_broker_defaults(spec)


def _with_zookeeper(node_id: int, port: int) -> dict[str, str]:
    return {
        "broker.id": str(node_id),
        "zookeeper.connect": loopback(port),
        "zookeeper.session.timeout.ms": str(3 * _ZOOKEEPER_TICK_MS),
        "listener.security.protocol.map": protocol_map(PLAINTEXT, controller=False),
    }


def zookeeper_properties(layout: Layout, port: int) -> dict[str, str]:
    """zookeeper.properties of the server that takes the controller's part."""
    return {
        "dataDir": str(layout.metadata_dir(CONTROLLER_NODE_ID)),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": "0",
        "tickTime": str(_ZOOKEEPER_TICK_MS),
        "admin.enableServer": "false",
    }


def _common_properties(
    spec: SandboxSpec, layout: Layout, node_id: int, quorum: int
) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "controller.quorum.voters": f"{controller_id(spec)}@{loopback(quorum)}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": protocol_map(spec.security),
        "metadata.log.dir": str(layout.metadata_dir(node_id)),
    }


def node_command(
    dist: KafkaDist, spec: SandboxSpec, layout: Layout, node_id: int, *, options: Sequence[str] = ()
) -> list[str]:
    """Argument vector of a broker or the controller; `options`: of a class archive, of security."""
    heap_mib = 256 if node_id == CONTROLLER_NODE_ID else spec.heap_mib
    jvm = [f"-Xmx{heap_mib}m", "-XX:-UsePerfData", *_JVM_PROFILES[spec.jvm], *options]
    if is_before_4(dist.version):
        jvm.append(f"-Dlog4j.configuration={_uri(layout.reload4j)}")
    else:
        jvm.append(f"-Dlog4j2.configurationFile={_uri(layout.log4j)}")
    is_zookeeper = spec.has_zookeeper and node_id == CONTROLLER_NODE_ID
    main_class = _ZOOKEEPER_CLASS if is_zookeeper else "kafka.Kafka"
    return dist.java_command(main_class, str(layout.server_properties(node_id)), jvm=jvm)


_ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


# `full` is what bin/kafka-server-start.sh gives a production broker.
_JVM_PROFILES = {
    "full": (
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
    ),
    "quick": ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
}


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


_FORMAT_TIMEOUT_S = 90


def write_node_files(layout: Layout, state: SandboxState, security: ClusterSecurity | None) -> None:
    """Write (again) what the nodes read at their start."""
    write_atomically(layout.log4j, LOG4J)
    write_atomically(layout.reload4j, RELOAD4J)
    for node_id in node_ids(state.spec):
        if node_id == CONTROLLER_NODE_ID and state.spec.has_zookeeper:
            properties = zookeeper_properties(layout, state.quorum_port)
        elif node_id == CONTROLLER_NODE_ID:
            properties = controller_properties(state.spec, layout, state.quorum_port, security)
        else:
            properties = broker_properties(
                state.spec, layout, node_id, state.ports, state.quorum_port, security
            )
        text = encode_properties(properties)
        write_atomically(layout.server_properties(node_id), text, private=security is not None)
    if state.spec.native_tiering:
        layout.native_store.mkdir(exist_ok=True)


def format_storage(
    dists: Mapping[str, KafkaDist],
    layout: Layout,
    state: SandboxState,
    security: ClusterSecurity | None,
) -> None:
    """Run Kafka's own format on every node with a directory that is not formatted.

    That is each node at first, and a broker whose disk was emptied (H4). A broker with ZooKeeper
    formats its own. SCRAM users begin with the metadata log, hence at the controller; their
    passwords are on no command line.
    """
    if state.spec.has_zookeeper:
        return
    unformatted = [
        node_id
        for node_id in node_ids(state.spec)
        if not all((path / "meta.properties").exists() for path in _dirs(layout, state, node_id))
    ]

    def format_node(node_id: int) -> None:
        config = str(layout.server_properties(node_id))
        words = ["format", "--cluster-id", state.cluster_id, "--config", config]
        words.append("--ignore-formatted")
        hidden = None
        if security is not None and node_id == controller_id(state.spec):
            words += security.format_options()
            hidden = security.files.format_arguments
        dist = dists[state.spec.version_of(node_id)]
        done = dist.run_tool("storage", *words, timeout_s=_FORMAT_TIMEOUT_S, argument_file=hidden)
        if done.returncode != 0:
            reason = _reason(done.stderr + done.stdout) or f"status {done.returncode}"
            raise SandboxError(f"formatting the storage of node {node_id} failed: {reason}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(format_node, unformatted))


def _dirs(layout: Layout, state: SandboxState, node_id: int) -> tuple[Path, ...]:
    if node_id == CONTROLLER_NODE_ID:
        return (layout.metadata_dir(node_id),)
    return (layout.metadata_dir(node_id), *layout.log_dirs(node_id, state.spec.log_dirs))


def _reason(output: str) -> str:
    """The line of a Java tool's output that says what is wrong, without the stack trace."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("\t")]
    blamed = [line for line in lines if "Exception" in line]
    return (blamed or lines or [""])[-1].strip()


def node_ids(spec: SandboxSpec) -> tuple[int, ...]:
    controller = (CONTROLLER_NODE_ID,) if spec.dedicated_controller else ()
    return (*controller, *spec.broker_ids)


def controller_id(spec: SandboxSpec) -> int:
    """The one node of the quorum."""
    return CONTROLLER_NODE_ID if spec.dedicated_controller else spec.broker_ids[0]
