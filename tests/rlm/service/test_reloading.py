"""A reload reaches every component, or changes nothing."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
import yaml
from structlog.testing import capture_logs

from kip405.errors import Invalid, Unavailable
from rlm.config import ServiceConfig
from rlm.config.memory import COPY_BYTES
from rlm.config.running import RunningConfig, SettingChange
from rlm.config.service import settings
from rlm.service.broker_service import BrokerService
from rlm.service.reloading import ConfigReload
from rlm.service.reports import build_diagnosis
from rlm_sandbox.ports import PortReservation
from rsm_plugins.process.logs import change_log_level, configure_logs
from rsm_plugins.threads import Threads
from tests import waiting
from tests.builders.clock import ManualClock
from tests.builders.service import broker_config, built_service

Row = tuple[object, Callable[[BrokerService], object]]
"""A changed value, and where the service should have it after a reload."""


RELOADED: dict[str, Row] = {
    "log.level": ("warning", lambda service: service._dependencies.running.now.log_level),
    "remote.log.manager.fetch.max.bytes.per.second": (
        11_000_001,
        lambda service: service._dependencies.throttle._bytes._service.rate,
    ),
    "remote.fetch.client.max.bytes.per.second": (
        11_000_002,
        lambda service: service._dependencies.throttle.limits.client_bytes_per_second,
    ),
    "remote.fetch.principal.max.bytes.per.second": (
        11_000_003,
        lambda service: service._dependencies.throttle._principals._rate,
    ),
    "remote.fetch.cpu.max.cores": (
        3.5,
        lambda service: service._dependencies.throttle._processor._bucket.rate / 1000,
    ),
    "access.check.interval.ms": (
        12_001,
        lambda service: service._topics.access_watch._interval_ms(),
    ),
    "store.inspect.interval.ms": (
        12_002,
        lambda service: service._dependencies.stores.inspect_interval_ms(),
    ),
    "remote.log.manager.task.interval.ms": (
        12_003,
        lambda service: service._tasks._copy_watch._interval_ms(),
    ),
    "trim.interval.ms": (12_004, lambda service: service._tasks._trim_interval_ms()),
    "log.dir.watch.interval.ms": (12_005, lambda service: service._tasks._watch_interval_ms()),
    "disk.check.interval.ms": (
        12_006,
        lambda service: service._dependencies.disk_pressure._interval_ms(),
    ),
    "copy.presence.check.interval.ms": (
        12_007,
        lambda service: service._tasks.lost._check_interval_ms(),
    ),
    "remote.log.manager.copier.thread.pool.size": (
        13,
        lambda service: service._tasks.partition_tasks.copy_pool._size,
    ),
    "remote.log.manager.expiration.thread.pool.size": (
        14,
        lambda service: service._tasks.partition_tasks.cleanup_pool._size,
    ),
    "remote.log.manager.copy.max.bytes.per.second": (
        15_000_001,
        lambda service: service._tasks.copy_limits.configured,
    ),
    "verify.max.bytes.per.second": (
        15_000_002,
        lambda service: service._tasks.verify.deep_check._bucket.rate,
    ),
}


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    yield
    change_log_level("info")


def test_every_setting_that_changes_while_running_has_a_row_here() -> None:
    assert RELOADED.keys() == {row.key for row in settings().values() if row.changes_while_running}


def _copies(number: int) -> dict[str, object]:
    """Memory for so many copies of large segments, whatever this machine has."""
    return {"copy.memory.max.bytes": number * COPY_BYTES}


class _File:
    """The settings file of a service, as its next reading finds it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.content: dict[str, object] = {}

    def read(self) -> ServiceConfig:
        return broker_config(self._folder, self.content)


async def test_a_reload_reaches_every_component(tmp_path: Path) -> None:
    file = _File(tmp_path)
    async with built_service(tmp_path, ManualClock(), _copies(10), reread=file.read) as service:
        before = {name: read(service) for name, (_, read) in RELOADED.items()}
        file.content = {name: value for name, (value, _) in RELOADED.items()}
        file.content |= {"max.frame.bytes": 4_096, **_copies(13)}
        with capture_logs() as logs:
            changes = await service.reload.reload()
        found = {name: read(service) for name, (_, read) in RELOADED.items()}
        shown = build_diagnosis(service._dependencies, bytes, list, tuple).settings_shown()
    expected = {name: value for name, (value, _) in RELOADED.items()}
    assert found == expected
    assert shown["trim.interval.ms"] == "12004"
    assert shown["max.frame.bytes"] != "4096", "waits for a restart"
    assert not [name for name in RELOADED if before[name] == found[name]]
    assert {one.key for one in changes.applied} == RELOADED.keys()
    assert sorted(changes.needs_restart) == ["copy.memory.max.bytes", "max.frame.bytes"]
    [capped] = [line for line in logs if line["event"] == "copies_limited_by_memory"]
    assert (capped["tasks"], capped["slots"]) == (13, 10), "until the restart"


async def test_nothing_is_changed_where_anything_is_wrong(tmp_path: Path) -> None:
    file = _File(tmp_path)
    async with built_service(tmp_path, ManualClock(), reread=file.read) as service:
        before = {name: read(service) for name, (_, read) in RELOADED.items()}
        file.content = {name: value for name, (value, _) in RELOADED.items()}
        file.content["sweep.grace.ms"] = 1
        file.content["copy.deadline.ms"] = 2
        refused = r"^nothing was changed: copy.deadline.ms: must be below sweep.grace.ms"
        with capture_logs() as logs, pytest.raises(Invalid, match=refused):
            await service.reload.reload()
        assert {name: read(service) for name, (_, read) in RELOADED.items()} == before
        assert service._dependencies.running.now == service._config
        assert [one["event"] for one in logs] == ["settings_not_reloaded"]
        del file.content["copy.deadline.ms"], file.content["sweep.grace.ms"]
        assert len((await service.reload.reload()).applied) == len(RELOADED)


async def test_a_request_while_the_service_ends_does_nothing(tmp_path: Path) -> None:
    async with built_service(tmp_path, ManualClock()) as service:
        pass
    with capture_logs() as logs:
        service.reload.request()
    assert logs == []


@pytest.mark.parametrize(
    ("first", "then"), [("info", "info"), ("info", "error"), ("error", "info"), ("debug", "info")]
)
async def test_one_line_says_what_was_changed(tmp_path: Path, first: str, then: str) -> None:
    """Whichever of the two levels shows it."""
    file = _File(tmp_path)
    given = {"log.level": first, **_copies(10)}
    async with built_service(tmp_path, ManualClock(), given, reread=file.read) as service:
        changed = {"log.level": then, "trim.interval.ms": 7, "proxy.max.connections": 9}
        file.content = changed | _copies(10)
        with capture_logs() as logs:
            changes = await service.reload.reload()
        [line] = logs
        assert line["event"] == "settings_reloaded"
        assert line["trim.interval.ms"] == "30000->7"
        assert line.get("log.level") == (None if first == then else f"{first}->{then}")
        assert line["needs_restart"] == ["proxy.max.connections"]
        assert SettingChange(key="trim.interval.ms", before="30000", after="7") in changes.applied


def _crash() -> ServiceConfig:
    raise RecursionError("the file is too deep")


@pytest.mark.parametrize("hangs", [True, False])
async def test_g6_a_signal_whose_reload_fails_in_any_way_does_not_end_the_service(
    tmp_path: Path, hangs: bool
) -> None:
    gate, threads = threading.Event(), Threads("other", 1, hang_ms=1)
    config = broker_config(tmp_path, {})

    def hang() -> ServiceConfig:
        gate.wait()
        return config

    running, taken = RunningConfig(config), list[ServiceConfig]()
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            reload = ConfigReload(
                running=running,
                read=hang if hangs else _crash,
                apply=taken.append,
                threads=threads,
                tasks=tasks,
            )
            reload.request()
            await waiting.until(lambda: logs)
            if hangs:
                with pytest.raises(Unavailable, match="nothing was changed: work of other has not"):
                    await reload.reload()
            gate.set()
    threads.close()
    assert {one["event"] for one in logs} == {"settings_not_reloaded"}
    assert running.now is config and not taken


def test_the_level_of_loggers_in_use_changes(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="warning")
    log = structlog.get_logger("one")
    log.info("a")
    log.warning("b")
    change_log_level("debug")
    log.debug("c")
    change_log_level("error")
    log.warning("d")
    log.error("e")
    shown = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["b", "c", "e"]


@contextmanager
def _reader(config: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "rlm.cli.main", "serve", "--role", "reader"]
    process = subprocess.Popen(
        [*command, "--config", str(config)], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_sighup_reloads_a_process_that_is_waiting_for_its_brokers(tmp_path: Path) -> None:
    """SIGUSR2, which is for a supervisor, does nothing to it."""
    ports = PortReservation()
    content = {
        "cluster.id": "c1",
        "state.dir": str(tmp_path / "state"),
        "grpc.listen": f"unix:{tmp_path}/g",
        "http.listen": f"127.0.0.1:{ports.take()}",
        "plugin.address": "127.0.0.1:1",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "memory.max.bytes": 1 << 60,
    }
    config = tmp_path / "rlm.yaml"
    config.write_text(yaml.safe_dump(content))
    events = []
    ports.lend_all()
    with ports, _reader(config) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said = json.loads(line)
            events.append(said["event"])
            if said["event"] == "starting":
                config.write_text(yaml.safe_dump(content | {"log.level": "verbose"}))
                process.send_signal(signal.SIGUSR2)
                process.send_signal(signal.SIGHUP)  # perhaps before there is a handler
            elif said["event"] == "settings_not_reloaded":
                assert said["error"].startswith("log.level: must be debug or info or")
                config.write_text(yaml.safe_dump(content | {"log.level": "debug"}))
                process.send_signal(signal.SIGHUP)
            elif said["event"] == "settings_reloaded":
                assert said["log.level"] == "info->debug"
                break
    assert "settings_reloaded" in events
    assert events.count("memory_above_limit") == 1, "it says so at its start"
