"""HDFS as the store: one NameNode and one DataNode on loopback ports, their files in the sandbox.

The root directory is made once, before the plugin starts: a plugin never makes the root of a store.
"""

import http.client
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rlm_sandbox.kafka_dist import java_environment
from rlm_sandbox.spec import Layout, SandboxError, loopback
from rlm_sandbox.store_servers import hdfs
from rlm_sandbox.stores.contract import Progress, check_installed

ROOT = "/rlm-sandbox"
NAMENODE = "store:namenode"
_WEB = "/webhdfs/v1"
_FORMAT_TIMEOUT_S = 90
_TIMEOUT_S = 20


def _silent(_line: str) -> None:
    """No progress is shown: everything was fetched when the sandbox came up."""


def _servers_environment() -> dict[str, str]:
    """Additions for Hadoop's processes: they call chmod and df, which PATH may not have."""
    path = os.environ.get("PATH")
    return hdfs.environment({"PATH": f"{path}{os.pathsep}{os.defpath}" if path else os.defpath})


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsStore:
    """The directory ROOT of a file system, two processes; see SandboxStore."""

    layout: Layout
    ports: Mapping[str, int]

    def resolve(self, progress: Progress) -> None:
        folder = str(self.layout.store)
        # A DataNode takes the % of an escaped path for a format of Java's and ends.
        if quote(folder) != folder:
            raise SandboxError(
                f"--dir {self.layout.root}: HDFS cannot keep its files there; allowed are paths of "
                "a-z A-Z 0-9 . _ - ~ and slashes"
            )
        check_installed("hdfs")
        hdfs.resolve(progress)

    def prepare(self) -> None:
        """Write the configuration and, before the first start, format the NameNode."""
        folder = self.layout.store
        folder.mkdir(exist_ok=True)
        hdfs.write_config(folder, self._hdfs_ports)
        formatted = folder / "formatted"
        if formatted.exists():
            return
        done = subprocess.run(  # noqa: S603 - our own Java on our own jars
            hdfs.format_command(hdfs.resolve(_silent), folder, self._hdfs_ports),
            capture_output=True,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            env={**java_environment(), **_servers_environment()},
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stderr + done.stdout).strip().splitlines() or ["no reason given"]
            raise SandboxError(f"formatting the NameNode failed: {lines[-1]}")
        formatted.touch()

    def command(self, name: str) -> list[str]:
        dist = hdfs.resolve(_silent)
        if name == NAMENODE:
            return hdfs.namenode_command(dist, self.layout.store, self._hdfs_ports)
        return hdfs.datanode_command(dist, self.layout.store)

    def environ(self, name: str) -> dict[str, str]:
        return _servers_environment()

    def ports_of(self, name: str) -> tuple[int, ...]:
        ports = self._hdfs_ports
        if name == NAMENODE:
            return (ports.namenodes[0].rpc, ports.namenodes[0].http)
        return (ports.data, ports.data_http, ports.data_ipc)

    def is_ready(self, name: str) -> bool:
        """A NameNode answers alone; a DataNode is ready when files can be written."""
        if name == NAMENODE:
            return hdfs.namenode_answers(self._hdfs_ports.namenodes[0])
        return hdfs.is_ready(self._hdfs_ports)

    def create(self) -> None:
        port = self._hdfs_ports.namenodes[0].http
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            connection.request("PUT", f"{_WEB}{ROOT}?op=MKDIRS&user.name=rlm")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise SandboxError(f"{ROOT} cannot be made in HDFS: {error}") from error
        finally:
            connection.close()
        if status != http.client.OK:
            raise SandboxError(f"{ROOT} cannot be made in HDFS: HTTP status {status}")

    def plugin_settings(self) -> dict[str, Any]:
        return {
            "rsm.config.hdfs.url": self._hdfs_ports.url,
            "rsm.config.root": ROOT,
            "rsm.config.hdfs.user": "rlm",
        }

    def document(self) -> dict[str, Any]:
        http_port = self._hdfs_ports.namenodes[0].http
        return {
            "uri": f"{self._hdfs_ports.url}{ROOT}",
            "endpoint": f"http://{loopback(http_port)}{_WEB}",
            "config_dir": str(hdfs.config_folder(self.layout.store)),
            "user": "rlm",
        }

    @property
    def _hdfs_ports(self) -> hdfs.HdfsPorts:
        ports = self.ports
        name_node = hdfs.NameNodePorts(rpc=ports["namenode"], http=ports["namenode_http"])
        return hdfs.HdfsPorts(
            namenodes=(name_node,),
            data=ports["datanode"],
            data_http=ports["datanode_http"],
            data_ipc=ports["datanode_ipc"],
        )
