"""Real HDFS for tests: session-wide, on free loopback ports, gone with its data when the tests are.

RLM_KEEP_SANDBOX=1 leaves the folders (not the processes) behind, to look at the logs.
"""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlm.clock import SystemClock
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.processes import ProcessIdentity, kill_group, pause_group, spawn, stop_all
from rlm_sandbox.store_servers import hdfs
from tests.endings import ended_early

START_TIMEOUT_S = 120.0
_POLL_S = 0.05
DATANODE = "datanode"
READERS = "rlm-readers"
"""The group of the user `rlm-reader` of the session's HDFS."""
_SUPERUSERS = ("rlm", "carla")
"""Besides whoever runs the tests."""
_HA_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"


@dataclass(slots=True, kw_only=True)
class HdfsServer:
    """One HDFS; processes are `nn1`, `nn2`, `datanode`, and `datanode2` where there are two."""

    folder: Path
    ports: hdfs.HdfsPorts
    dist: hdfs.HdfsDist
    processes: dict[str, ProcessIdentity] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.ports.url

    @property
    def config(self) -> Path:
        """Folder of core-site.xml and hdfs-site.xml."""
        return hdfs.config_folder(self.folder)

    def start(self, name: str) -> None:
        if name.startswith(DATANODE):
            number = int(name.removeprefix(DATANODE) or 1) - 1
            command = hdfs.datanode_command(self.dist, self.folder, self.ports, number)
        else:
            number = int(name.removeprefix("nn")) - 1
            command = hdfs.namenode_command(self.dist, self.folder, self.ports, number)
        log = self.folder / "logs" / f"{name}.log"
        self.processes[name] = spawn(command, log=log, environ=hdfs.environment(), cwd=self.folder)

    def kill(self, name: str) -> None:
        kill_group(self.processes[name])

    def pause(self, name: str) -> None:
        pause_group(self.processes[name])

    def resume(self, name: str) -> None:
        self.processes[name].signal_group(signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Kill where it still runs, start, and wait until files can be written again."""
        self.kill(name)
        self.start(name)
        self.wait_ready()

    def wait_ready(self) -> None:
        self.wait_for(lambda: hdfs.is_ready(self.ports), "HDFS to be ready")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}; see {self.folder / 'logs'}")
            time.sleep(_POLL_S)

    def answers(self, number: int) -> bool:
        """Whether a NameNode is up, in whatever state."""
        return hdfs.namenode_answers(self.ports.namenodes[number])

    def activate(self, number: int) -> None:
        """Make a NameNode active; the other must be dead or standby: there is no fencing."""
        self._tool(_HA_ADMIN, "-transitionToActive", "--forceactive", hdfs.node_id(number))

    def deactivate(self, number: int) -> None:
        self._tool(_HA_ADMIN, "-transitionToStandby", hdfs.node_id(number))

    def admin(self, *args: str) -> str:
        """`hdfs dfsadmin`: `-safemode enter`, `-setSpaceQuota 1m /x`."""
        return self._tool(_ADMIN, *args)

    def _tool(self, tool: str, *args: str) -> str:
        return run(self.dist.command(tool, self.config, *args))

    def stop(self) -> None:
        stop_all(self.processes.values(), grace_ms=2_000, clock=SystemClock())


def run(command: list[str]) -> str:
    """Output of a Hadoop tool; AssertionError with it where it fails."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        env=hdfs.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_hdfs(
    folder: Path,
    *,
    ha: bool = False,
    datanodes: int = 1,
    overrides: Mapping[str, str] | None = None,
) -> HdfsServer:
    """A formatted, running HDFS that takes writes; every block is on every DataNode. `overrides`
    are further lines of hdfs-site.xml.
    """
    dist = hdfs.resolve()
    with PortReservation() as reservation:
        ports = hdfs.HdfsPorts.take(reservation, ha=ha, datanodes=datanodes)
        server = HdfsServer(folder=folder, ports=ports, dist=dist)
        hdfs.write_config(folder, ports, overrides)
        run(hdfs.format_command(dist, folder, ports))
    try:
        if ha:
            # As `-bootstrapStandby` does, without another Java: the first NameNode does not run.
            shutil.copytree(hdfs.name_folder(folder, 0), hdfs.name_folder(folder, 1))
        more = (f"{DATANODE}{number}" for number in range(2, datanodes + 1))
        for name in (*map(hdfs.node_id, range(len(ports.namenodes))), DATANODE, *more):
            server.start(name)
        if ha:
            server.wait_for(lambda: hdfs.namenode_answers(ports.namenodes[0]), "nn1")
            server.activate(0)
        server.wait_ready()
    except BaseException:
        server.stop()
        raise
    return server


def end_hdfs(server: HdfsServer) -> None:
    """Stop it and remove its data."""
    server.stop()
    if not os.environ.get("RLM_KEEP_SANDBOX"):
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """One NameNode and two DataNodes for the whole session: use a root folder of your own, and
    leave it running. With two, files are closed without half a second of waiting. It checks
    permissions, which hold nobody back but the users that a test acts as.
    """
    server = start_hdfs(tmp_path_factory.mktemp("hdfs"), datanodes=2, overrides=_with_permissions())
    try:
        yield server
    finally:
        end_hdfs(server)


def _with_permissions() -> dict[str, str]:
    """Lines of hdfs-site.xml that have the NameNode check permissions, with groups of their own."""
    users = (*_SUPERUSERS, pwd.getpwuid(os.getuid()).pw_name)
    groups = [*(f"{user}=supergroup" for user in dict.fromkeys(users)), f"rlm-reader={READERS}"]
    groups += ["rlm-service=", "somebody="]
    return {
        "dfs.permissions.enabled": "true",
        "hadoop.user.group.static.mapping.overrides": ";".join(groups),
    }


@pytest.fixture(scope="session")
def hdfs_ha_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HdfsServer]:
    """Two NameNodes with a shared edit log and one DataNode; `nn1` is active at first."""
    server = start_hdfs(tmp_path_factory.mktemp("hdfs-ha"), ha=True)
    with ended_early(request, lambda: end_hdfs(server)):
        yield server
