"""Faults of one broker's sandbox: a store that cannot be written, and all made well again."""

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from rlm_sandbox.ports import port_is_free
from rlm_sandbox.readiness import plugin_answers, service_is_ready
from rlm_sandbox.services import QUICK_SERVICE, rlm_command
from tests.scenarios.cluster import Cluster
from tests.scenarios.replicas import heal

# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH dropped from the bounding set (PR_CAPBSET_DROP = 24,
# capabilities 1 and 2): after the exec the modes of files hold for root too. Needs no file system
# flag, no mount and no second user.
_WITHOUT_OVERRIDE = """
import ctypes, os, sys
for capability in (1, 2) if os.geteuid() == 0 else ():
    if ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0):
        sys.exit(f"capability {capability} cannot be dropped: errno {ctypes.get_errno()}")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
_END_S = 120
_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def whole(cluster: Cluster) -> None:
    """Resume and start whatever a test left paused or stopped."""
    for row in cluster.sandbox.status():
        if row.state == "paused":
            cluster.sandbox.resume(row.name)
    heal(cluster)


def store_dir(cluster: Cluster) -> Path:
    return cluster.sandbox.layout.store


@contextlib.contextmanager
def plugin_that_obeys_modes(cluster: Cluster) -> Iterator[None]:
    """The plugin of broker 1 in a process for which read-only means read-only, root or not."""
    config = cluster.sandbox.layout.plugin_config(1)
    port = int(cluster.sandbox.json["plugin"].rpartition(":")[2])
    cluster.sandbox.kill("plugin:1")
    cluster.wait_for(lambda: port_is_free(port), "port of the plugin free")
    serve = ["-P", "-m", "rsm_plugins.process.main", "serve", "--config", str(config)]
    with subprocess.Popen([sys.executable, "-c", _WITHOUT_OVERRIDE, *serve]) as process:
        try:
            cluster.wait_for(lambda: plugin_answers(port), "the plugin answers")
            yield
        finally:
            process.terminate()
            process.wait(_END_S)
    cluster.wait_for(lambda: port_is_free(port), "port of the plugin free")
    cluster.sandbox.start("plugin:1")


@contextlib.contextmanager
def service_that_obeys_modes(
    cluster: Cluster, log: Path, intervals: Mapping[str, object] = QUICK_SERVICE
) -> Iterator[None]:
    """The service of broker 1 in such a process; `log` gets what it logs. `intervals`: instead of
    those by which a sandbox is quick.
    """
    port = cluster.sandbox.state.ports[1].http
    written = yaml.safe_load(cluster.sandbox.layout.rlm_config(1).read_text())
    config = log.with_suffix(".yml")
    kept = {key: value for key, value in written.items() if key not in QUICK_SERVICE}
    config.write_text(yaml.safe_dump({**kept, **intervals}))
    cluster.sandbox.kill("rlm:1")
    cluster.wait_for(lambda: port_is_free(port), "port of the service free")
    serve = [*rlm_command(cluster.sandbox.layout, 1)[1:-1], str(config)]
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [sys.executable, "-c", _WITHOUT_OVERRIDE, *serve], stdout=written, stderr=written
        ) as process,
    ):
        try:
            cluster.wait_for(lambda: service_is_ready(port), "the service is ready")
            yield
        finally:
            process.terminate()
            process.wait(_END_S)
    cluster.wait_for(lambda: port_is_free(port), "port of the service free")
    cluster.sandbox.start("rlm:1")


@contextlib.contextmanager
def unreadable(directory: Path) -> Iterator[None]:
    """No process that obeys modes can list the directory or open what is in it."""
    mode = directory.stat().st_mode
    directory.chmod(0)
    try:
        yield
    finally:
        directory.chmod(mode)


@contextlib.contextmanager
def read_only_store(cluster: Cluster) -> Iterator[None]:
    """Nothing can be created, renamed or removed in the store's directory; reads work.

    Only for a plugin that obeys modes.
    """
    modes: dict[Path, int] = {}
    try:
        for found, _, _ in os.walk(store_dir(cluster)):
            path = Path(found)
            with contextlib.suppress(FileNotFoundError):  # of a topic that another test deleted
                mode = path.stat().st_mode
                path.chmod(mode & ~_WRITE)
                modes[path] = mode
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
