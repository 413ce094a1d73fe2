"""A small HDFS for the sandbox and tests: its jars, its configuration files and its commands.

Hadoop comes as jars from the Maven repository and runs on the sandbox's own Java. One NameNode, or
two that share an edit log in a folder (transitions by DFSHAAdmin, no ZooKeeper); DataNodes.
This module does not start the processes. Settings: hdfs-default.xml of Hadoop 3.4.
"""

import http.client
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from rlm_sandbox.files import write_atomically
from rlm_sandbox.kafka_dist import cache_dir, java_binary
from rlm_sandbox.maven import Progress, cached_jars
from rlm_sandbox.ports import PortReservation

HADOOP_VERSION = "3.4.2"
DOWNLOAD_SIZE_MIB = 80
NAMESERVICE = "rlm-sandbox"
# Hadoop's poms leave it to the distribution; without it the servers' logs stay empty.
_LOGGING_BINDING = "org.slf4j:slf4j-reload4j:1.7.36"
_LOOPBACK = "127.0.0.1"
_PROBE_TIMEOUT_S = 1.0
_FRESH_CONTACT_S = 2
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_SCRATCH = "tmp"  # what servers that are killed leave goes with their folder
_JVM = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_LOG4J = """\
log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsDist:
    """Jars of one Hadoop version and a Java that runs them."""

    version: str
    jars: tuple[Path, ...]
    java: Path

    def command(self, main_class: str, config: Path, *args: str) -> list[str]:
        """The argument vector that runs `main_class` with the configuration folder first."""
        classpath = os.pathsep.join(str(path) for path in (config, *self.jars))
        scratch = f"-Djava.io.tmpdir={config / _SCRATCH}"
        return [str(self.java), *_JVM, scratch, "-cp", classpath, main_class, *args]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameNodePorts:
    """Loopback ports of one NameNode."""

    rpc: int
    http: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNodePorts:
    """Loopback ports of one more DataNode."""

    data: int
    http: int
    ipc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsPorts:
    """Loopback ports of a whole HDFS; two name nodes make it highly available, and every block is
    on every DataNode: the one that `data...` are of, and the `others`.
    """

    namenodes: tuple[NameNodePorts, ...]
    data: int
    data_http: int
    data_ipc: int
    others: tuple[DataNodePorts, ...] = ()

    @classmethod
    def take(
        cls, reservation: PortReservation, *, ha: bool = False, datanodes: int = 1
    ) -> "HdfsPorts":
        """Free ports, held by the reservation until the processes start."""
        take = reservation.take
        return cls(
            namenodes=tuple(
                NameNodePorts(rpc=reservation.take(), http=reservation.take())
                for _ in range(2 if ha else 1)
            ),
            data=take(),
            data_http=take(),
            data_ipc=take(),
            others=tuple(
                DataNodePorts(data=take(), http=take(), ipc=take()) for _ in range(datanodes - 1)
            ),
        )

    @property
    def ha(self) -> bool:
        return len(self.namenodes) > 1

    @property
    def url(self) -> str:
        """The URL of the file system for clients: `hdfs://host:port`, or with the name service."""
        if self.ha:
            return f"hdfs://{NAMESERVICE}"
        return f"hdfs://{_address(self.namenodes[0].rpc)}"

    def all(self) -> tuple[int, ...]:
        """Every port, to release them before the processes start."""
        names = (port for node in self.namenodes for port in (node.rpc, node.http))
        more = (port for node in self.others for port in (node.data, node.http, node.ipc))
        return (*names, self.data, self.data_http, self.data_ipc, *more)


def resolve(
    progress: Progress = lambda _line: None, environ: Mapping[str, str] = os.environ
) -> HdfsDist:
    """Find or fetch Hadoop and Java; SandboxError has one line that says what is missing."""
    coordinates = (
        *(
            f"org.apache.hadoop:{artifact}:{HADOOP_VERSION}"
            for artifact in ("hadoop-hdfs", "hadoop-hdfs-client", "hadoop-common")
        ),
        _LOGGING_BINDING,
    )
    jars = cached_jars(
        f"hadoop-{HADOOP_VERSION}",
        coordinates,
        cache_dir(environ),
        repository=environ.get("RLM_MAVEN_REPO"),
        size_mib=DOWNLOAD_SIZE_MIB,
        progress=progress,
    )
    return HdfsDist(version=HADOOP_VERSION, jars=jars, java=java_binary(environ))


def write_config(
    folder: Path, ports: HdfsPorts, overrides: Mapping[str, str] | None = None
) -> Path:
    """Write core-site.xml, hdfs-site.xml and what the servers want beside them; the folder of them.

    Everything lies below `folder`; `overrides` are further lines of hdfs-site.xml.
    """
    config = config_folder(folder)
    # Without these (empty) folders on the class path the servers refuse to start.
    for part in ("hdfs", "datanode", "static"):
        (config / "webapps" / part).mkdir(parents=True, exist_ok=True)
    (config / _SCRATCH).mkdir(exist_ok=True)
    write_atomically(config / "log4j.properties", _LOG4J)
    write_atomically(config / "core-site.xml", _site(_core_site(folder, ports)))
    hdfs_site = {**_hdfs_site(folder, ports), **(overrides or {})}
    write_atomically(config / "hdfs-site.xml", _site(hdfs_site))
    return config


def config_folder(folder: Path) -> Path:
    """The folder of `write_config`; clients read core-site.xml and hdfs-site.xml there."""
    return folder / "conf"


def _core_site(folder: Path, ports: HdfsPorts) -> dict[str, str]:
    return {
        "fs.defaultFS": ports.url,
        "hadoop.tmp.dir": str(folder / "tmp"),
        "hadoop.security.token.service.use_ip": "true",
    }


def _hdfs_site(folder: Path, ports: HdfsPorts) -> dict[str, str]:
    common = {
        "dfs.replication": str(1 + len(ports.others)),
        "dfs.permissions.enabled": "false",
        "dfs.blocksize": str(32 << 20),
        "dfs.namenode.fs-limits.min-block-size": str(1 << 20),
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.handler.count": "8",
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.heartbeat.recheck-interval": "2000",
        # A client's last word overtakes the DataNodes' report of the block, and it waits half a
        # second before it asks again. With two DataNodes this lets the NameNode say yes at once.
        "dfs.namenode.file.close.num-committed-allowed": "1",
        "dfs.datanode.hostname": _LOOPBACK,
        **_datanode(
            folder, 0, DataNodePorts(data=ports.data, http=ports.data_http, ipc=ports.data_ipc)
        ),
    }
    if not ports.ha:
        return {
            **common,
            "dfs.namenode.rpc-bind-host": _LOOPBACK,
            "dfs.namenode.http-address": _address(ports.namenodes[0].http),
            "dfs.namenode.name.dir": name_folder(folder, 0).absolute().as_uri(),
        }
    return {**common, **_ha_site(folder, ports)}


def _datanode(folder: Path, number: int, ports: DataNodePorts) -> dict[str, str]:
    return {
        "dfs.datanode.address": _address(ports.data),
        "dfs.datanode.http.address": _address(ports.http),
        "dfs.datanode.ipc.address": _address(ports.ipc),
        "dfs.datanode.data.dir": (folder / f"data-{number + 1}").absolute().as_uri(),
    }


def _ha_site(folder: Path, ports: HdfsPorts) -> dict[str, str]:
    ids = [node_id(at) for at in range(len(ports.namenodes))]
    site = {
        "dfs.nameservices": NAMESERVICE,
        f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(ids),
        "dfs.ha.fencing.methods": "shell(/bin/true)",
        "dfs.ha.tail-edits.period": "1s",
        "dfs.ha.log-roll.period": "5s",
        "dfs.namenode.shared.edits.dir": (folder / "shared-edits").absolute().as_uri(),
        f"dfs.client.failover.proxy.provider.{NAMESERVICE}": (
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        ),
    }
    for at, node in enumerate(ports.namenodes):
        suffix = f"{NAMESERVICE}.{node_id(at)}"
        site[f"dfs.namenode.rpc-address.{suffix}"] = _address(node.rpc)
        site[f"dfs.namenode.http-address.{suffix}"] = _address(node.http)
        site[f"dfs.namenode.name.dir.{suffix}"] = name_folder(folder, at).absolute().as_uri()
    return site


def node_id(number: int) -> str:
    """Id of the numbered NameNode (0 or 1) of a highly available HDFS: `nn1`, `nn2`."""
    return f"nn{number + 1}"


def format_command(dist: HdfsDist, folder: Path, ports: HdfsPorts) -> list[str]:
    """Make an empty file system (and the shared edit log); once, before the first start."""
    return _namenode(dist, folder, ports, 0, "-format", "-force", "-nonInteractive")


def namenode_command(dist: HdfsDist, folder: Path, ports: HdfsPorts, number: int = 0) -> list[str]:
    """Run a NameNode; of two, both start as standby."""
    return _namenode(dist, folder, ports, number)


def _namenode(dist: HdfsDist, folder: Path, ports: HdfsPorts, number: int, *args: str) -> list[str]:
    identity = (f"-Ddfs.ha.namenode.id={node_id(number)}",) if ports.ha else ()
    return dist.command(_NAMENODE, config_folder(folder), *identity, *args)


def datanode_command(
    dist: HdfsDist, folder: Path, ports: HdfsPorts | None = None, number: int = 0
) -> list[str]:
    """Run a DataNode, which waits for its NameNodes; number 1 and up are the other ones."""
    if number == 0 or ports is None:
        return dist.command(_DATANODE, config_folder(folder))
    own = _datanode(folder, number, ports.others[number - 1])
    return dist.command(
        _DATANODE, config_folder(folder), *(f"-D{key}={value}" for key, value in own.items())
    )


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment of the servers and tools: they act as one user, whatever user starts them."""
    return {**environ, "HADOOP_USER_NAME": "rlm"}


def is_ready(ports: HdfsPorts) -> bool:
    """Whether files can be written now: every DataNode listening and just heard of by a NameNode
    that is active and out of safe mode.

    A count of live nodes alone is not enough: it stays up for seconds after a death.
    """
    listening = (ports.data, *(node.data for node in ports.others))
    return all(map(_accepts, listening)) and any(
        namenode_is_active(node) and _serves_writes(node, len(listening))
        for node in ports.namenodes
    )


def namenode_answers(node: NameNodePorts) -> bool:
    """Whether the NameNode is up, in whatever state."""
    return _accepts(node.rpc) and bool(_bean(node, "NameNodeStatus").get("State"))


def namenode_is_active(node: NameNodePorts) -> bool:
    return _bean(node, "NameNodeStatus").get("State") == "active"


def _serves_writes(node: NameNodePorts, datanodes: int) -> bool:
    info = _bean(node, "NameNodeInfo")
    try:
        nodes = json.loads(info["LiveNodes"]).values()
        fresh = [one for one in nodes if int(one["lastContact"]) <= _FRESH_CONTACT_S]
        return info["Safemode"] == "" and len(fresh) >= datanodes
    except (KeyError, ValueError, TypeError, AttributeError):
        return False


def _bean(node: NameNodePorts, name: str) -> dict[str, Any]:
    """A bean of the NameNode's /jmx; empty where it does not answer."""
    connection = http.client.HTTPConnection(_LOOPBACK, node.http, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", f"/jmx?qry=Hadoop:service=NameNode,name={name}")
        beans = json.loads(connection.getresponse().read()).get("beans")
        return dict(beans[0]) if beans else {}
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return {}
    finally:
        connection.close()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((_LOOPBACK, port), timeout=_PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def name_folder(folder: Path, number: int) -> Path:
    return folder / f"name-{node_id(number)}"


def _address(port: int) -> str:
    return f"{_LOOPBACK}:{port}"


def _site(properties: Mapping[str, str]) -> str:
    lines: Sequence[str] = [
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
        for key, value in properties.items()
    ]
    return "\n".join(
        ('<?xml version="1.0" encoding="UTF-8"?>', "<configuration>", *lines, "</configuration>\n")
    )
