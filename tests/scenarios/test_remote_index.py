"""Remote index files of a service on a real broker, before an S3 server: fewer requests, and the
same records whatever happens to the files.

The configurations of service and plugin of the shared sandbox are rewritten, and put back.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from rlm.reading.remote_index import FOLDER
from rlm_sandbox.ports import port_is_free
from rlm_sandbox.readiness import service_is_ready
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.services import rlm_command
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.counted_store import CountedStore, counted_store
from tests.scenarios.faults import whole
from tests.scenarios.raw import PATIENT_MS, at_leader, fetch

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("one_broker", ["s3"], indirect=True, scope="session"),
]

_ENDPOINT = "rsm.config.s3.endpoint.url"
_PARTITIONS = 4
_MIB = 3
_ROUNDS = 6
_FULL_AFTER = ("4k", "12k", "16k", "28k")
"""Sizes of a disk: some of the files of the first segments fit, in pages of 4 KiB."""
_LIMIT_S = 150
_FETCH_VERSION = 12
_ON: Mapping[str, Any] = {
    "remote.index.files": "on",
    "remote.index.interval.bytes": 65_536,
    "remote.index.segment.bytes": 65_536,
}


class Site:
    """A topic of trimmed partitions, and the service whose files have them."""

    def __init__(self, cluster: Cluster, store: CountedStore) -> None:
        self.cluster, self.store = cluster, store
        self.config = cluster.sandbox.layout.rlm_config(1)
        self.folder = Path(yaml.safe_load(self.config.read_text())["state.dir"]) / FOLDER
        self.topic = fresh("index")
        cluster.create_topic(self.topic, partitions=_PARTITIONS)
        cluster.enable(self.topic)
        self.rows = [
            row
            for partition in range(_PARTITIONS)
            for row in cluster.fill(self.topic, mib=_MIB, partition=partition)
        ]
        for partition in range(_PARTITIONS):
            cluster.wait_trimmed(self.topic, partition)

    def stop(self) -> None:
        self.cluster.sandbox.kill("rlm:1")

    def start(self) -> None:
        self.cluster.sandbox.start("rlm:1")

    def file(self, partition: int, suffix: str) -> Path:
        """The only file of the kind that the partition has."""
        [found] = (self.folder / f"{self.topic}-{partition}").glob(f"*.{suffix}")
        return found

    def is_kept(self, partition: int, suffix: str) -> bool:
        """Whether that file is there; it is written behind the copy."""
        found = list((self.folder / f"{self.topic}-{partition}").glob(f"*.{suffix}"))
        return len(found) == 1 and found[0].stat().st_size > 0

    def read(self) -> list[Row]:
        return self.cluster.read_all(self.topic, log_level=0, timeout_s=_LIMIT_S)

    def cold_read(self, offset: int) -> bytes:
        """One Fetch of partition 0."""

        async def ask(client: Any) -> bytes:
            found = await fetch(
                client, _FETCH_VERSION, self.topic, offset, max_bytes=1, max_wait_ms=PATIENT_MS
            )
            return bytes(found["records"] or b"")

        return at_leader(self.cluster, self.topic, ask)


@pytest.fixture(scope="module")
def site(one_broker: Sandbox) -> Iterator[Site]:
    with Cluster(one_broker) as cluster:
        whole(cluster)
        paths = one_broker.layout.plugin_config(1), one_broker.layout.rlm_config(1)
        before = [path.read_text() for path in paths]
        plugin, service = (yaml.safe_load(text) for text in before)
        with counted_store(urlsplit(plugin[_ENDPOINT]).port or 0) as store:
            try:
                changed = {**plugin, _ENDPOINT: store.endpoint}, {**service, **_ON}
                _restart(cluster, paths, [yaml.safe_dump(one) for one in changed])
                yield Site(cluster, store)
            finally:
                cluster.delete_topics()
                _restart(cluster, paths, before)


def _restart(cluster: Cluster, paths: tuple[Path, ...], texts: list[str]) -> None:
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    for part in ("rlm:1", "plugin:1"):
        cluster.sandbox.kill(part)
    for part in ("plugin:1", "rlm:1"):
        cluster.sandbox.start(part)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_no_index_is_asked_for_and_damaged_files_cost_no_record(site: Site) -> None:
    of_segments = ("remoteoffsetindex", "remotetimeindex", "remotesegmentindex")
    damaged = [(1, "remotelogindex"), *((2, suffix) for suffix in of_segments)]
    site.cluster.wait_for(
        lambda: all(site.is_kept(*one) for one in damaged), "what was copied is kept"
    )
    site.stop()
    for partition, suffix in damaged:
        _flip(site.file(partition, suffix))
    shutil.rmtree(site.folder / f"{site.topic}-3")
    site.start()
    site.store.forget()
    assert site.cold_read(300)
    assert set(site.store.gets(site.topic)) == {"log"}  # a second range may be read ahead
    assert_same(site.read(), site.rows)
    assert site.store.gets(site.topic)["indexes"] > 0

    def is_kept_again() -> bool:
        site.stop()
        site.start()
        site.store.forget()
        assert_same(site.read(), site.rows)
        return set(site.store.gets(site.topic)) == {"log"}

    # what a read brings is kept in the background, and a stop may come before
    site.cluster.wait_for(is_kept_again, "all that was damaged is kept again")


@pytest.mark.long
def test_h24_kills_while_files_are_written_cost_no_record(site: Site) -> None:
    rng = random.Random(11)
    for number in range(_ROUNDS):
        site.stop()
        shutil.rmtree(site.folder)
        site.start()
        [pid] = [one["rlm_pid"] for one in site.cluster.sandbox.json["brokers"]]
        wanted = rng.randrange(1, 2 * _PARTITIONS)
        with ThreadPoolExecutor(1) as readers:
            reading = readers.submit(site.read)
            deadline = time.monotonic() + _LIMIT_S
            while _log_count(site.folder) < wanted and not reading.done():
                assert time.monotonic() < deadline, f"{number}: nothing is written"
            os.killpg(pid, signal.SIGKILL)
            site.stop()
            site.start()
            assert_same(reading.result(_LIMIT_S), site.rows)
        assert_same(site.read(), site.rows)


def _log_count(folder: Path) -> int:
    """How many segments begin in the remotelogindexes, or are being written."""
    sizes = []
    with contextlib.suppress(FileNotFoundError):
        sizes = [path.stat().st_size for path in folder.rglob("*.remotelogindex")]
    return sum(1 + (size > 2_500) for size in sizes)


@pytest.mark.long
def test_a_full_disk_costs_no_record(site: Site, tmp_path: Path) -> None:
    """A small tmpfs holds the files, in a mount namespace of the service alone."""
    port = site.cluster.sandbox.state.ports[1].http
    command = rlm_command(site.cluster.sandbox.layout, 1)
    if subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "a", "/mnt"], check=False
    ).returncode:
        pytest.skip("there are no mount namespaces")
    for size in _FULL_AFTER:
        site.stop()
        site.cluster.wait_for(lambda: port_is_free(port), "port of the service free")
        site.folder.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o size={size} small "$0" && exec "$@"'
        unshared = ["unshare", "-rm", "sh", "-ec", mount, str(site.folder), *command]
        with (
            (tmp_path / f"{size}.log").open("wb") as log,
            subprocess.Popen(unshared, stdout=log, stderr=log) as service,
        ):
            try:
                site.cluster.wait_for(lambda: service_is_ready(port), "the service is ready")
                assert_same(site.read(), site.rows)
                assert_same(site.read(), site.rows)
            finally:
                service.kill()
        assert "No space left on device" in (tmp_path / f"{size}.log").read_text()
        site.start()
        assert_same(site.read(), site.rows)
