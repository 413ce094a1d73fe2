"""S3 and HDFS servers as containers, for machines that have an engine; skipped with its answer
where none does. Image names carry no registry: the engine's own configuration says where from.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from rlm_sandbox.ports import PortReservation
from rlm_sandbox.store_servers import hdfs
from rlm_sandbox.store_servers import versitygw as gateway

S3_IMAGE = "versity/versitygw:v1.8.0"
S3_PORT = 7070
HDFS_IMAGE = "apache/hadoop:3.4.1"
READY_SECONDS = 120
ACCESS_KEY = "rlm-test-access"
SECRET_KEY = "rlm-test-secret"
BUCKET = "kit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStore:
    """The `rsm.config.*` rows that lead a plugin of this kind into the container."""

    kind: str
    rows: dict[str, object]
    many: int


@pytest.fixture(scope="session")
def engine() -> None:
    """Skips where no container engine answers; asked by a process of its own, because a client that
    cannot connect leaves its socket open.
    """
    ping = (
        "from testcontainers.core.docker_client import DockerClient; DockerClient().client.ping()"
    )
    asked = subprocess.run(
        [sys.executable, "-c", ping], capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode != 0:
        why = (asked.stderr.strip() or "it does not say why").splitlines()[-1]
        pytest.skip(f"no container engine answers: {why[:200]}")


@pytest.fixture
def s3_container(engine: None) -> Iterator[ServedStore]:
    """versitygw over a folder of the container."""
    container = (
        DockerContainer(S3_IMAGE)
        .with_envs(**gateway.environ(ACCESS_KEY, SECRET_KEY))
        .with_exposed_ports(S3_PORT)
        .with_tmpfs_mount("/data")
        .with_command(
            f"--port :{S3_PORT} --region {gateway.REGION} --health /health --keep-alive "
            "posix --sidecar /tmp /data"
        )
    )
    with container:
        port = int(container.get_exposed_port(S3_PORT))
        until(lambda: gateway.is_ready(port), "the S3 server to answer")
        gateway.create_bucket(port, BUCKET, ACCESS_KEY, SECRET_KEY)
        rows: dict[str, object] = {
            "rsm.config.s3.bucket.name": BUCKET,
            "rsm.config.s3.region": gateway.REGION,
            "rsm.config.s3.endpoint.url": gateway.endpoint(port),
            "rsm.config.s3.path.style.access.enabled": True,
            "rsm.config.aws.access.key.id": ACCESS_KEY,
            "rsm.config.aws.secret.access.key": SECRET_KEY,
        }
        yield ServedStore(kind="s3", rows=rows, many=1_003)


@pytest.fixture
def hdfs_container(engine: None, tmp_path: Path) -> Iterator[ServedStore]:
    """A NameNode and a DataNode in one container, on this machine's own loopback ports: a DataNode
    tells its clients an address that they must be able to reach.
    """
    with PortReservation() as reservation:
        ports = hdfs.HdfsPorts.take(reservation)
    config = hdfs.write_config(tmp_path, ports)
    container = (
        DockerContainer(HDFS_IMAGE)
        .with_volume_mapping(str(tmp_path), str(tmp_path), "rw")
        .with_envs(HADOOP_CONF_DIR=str(config), HADOOP_USER_NAME="rlm")
        .with_kwargs(network_mode="host", user="root")
        .with_command(
            "bash -c 'hdfs namenode -format -force -nonInteractive && "
            "(hdfs namenode & hdfs datanode & wait)'"
        )
    )
    with container:
        until(lambda: hdfs.is_ready(ports), "HDFS to be ready")
        rows: dict[str, object] = {
            "rsm.config.hdfs.url": ports.url,
            "rsm.config.hdfs.hdfs-site.path": str(config / "hdfs-site.xml"),
            "rsm.config.root": "/kit",
        }
        yield ServedStore(kind="hdfs", rows=rows, many=120)
        # What root wrote here is root's to remove.
        container.exec(["bash", "-c", f"rm -rf {tmp_path}/*"])


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)
