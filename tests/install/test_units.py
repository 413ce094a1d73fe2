"""The systemd units: their command lines run under their limits, and how much they shut out."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kip405.settings import rows_of
from rlm.config import ServiceConfig
from rlm.service.supervised import STOP_MARGIN_MS
from rlm.workers.children import KILLED_MS
from rlm_sandbox.ports import PortReservation
from tests.project.tree import ROOT

pytestmark = pytest.mark.integration

UNITS = ROOT / "systemd"
NAMES = ("kafka-rlm.service", "kafka-rlm-reader.service")
MOST_EXPOSED_TENTHS = 30
PROGRAM = "/opt/kafka-rlm/bin/rlm"
# Applies a unit's limits as systemd does before it starts the command that follows.
LIMITED = """
import ctypes, os, resource, sys
files, cores, mask, command = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3], 8), sys.argv[4:]
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, most), min(files, most)))
resource.setrlimit(resource.RLIMIT_CORE, (cores, cores))
os.umask(mask)
if sys.platform == "linux":
    assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
os.execv(command[0], command)
"""

Unit = Mapping[str, Sequence[str]]


def read_unit(name: str) -> Unit:
    """The settings of a unit; each may be there several times."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (UNITS / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def command_of(unit: Unit, config: Path) -> list[str]:
    """Its command line, with the program of this tree and another file of settings."""
    [line] = unit["ExecStart"]
    program, *arguments = shlex.split(line)
    assert program == PROGRAM
    at = arguments.index("--config") + 1
    assert arguments[at].startswith(f"/etc/{unit['ConfigurationDirectory'][0]}/")
    arguments[at] = str(config)
    return [sys.executable, "-m", "rlm.cli.main", *arguments]


def limited(unit: Unit, command: Sequence[str]) -> list[str]:
    [files], [cores], [mask] = unit["LimitNOFILE"], unit["LimitCORE"], unit["UMask"]
    return [sys.executable, "-c", LIMITED, files, cores, mask, *command]


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30):
            return True
    except urllib.error.HTTPError:
        return True  # it says that it is not well, as no broker is there
    except OSError:
        return False


def wait_until_answered(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 120
    while not answers(port) and process.poll() is None:
        assert time.monotonic() < end, "nothing answers"
        time.sleep(0.05)


def settings(name: str, folder: Path, ports: PortReservation, http: int) -> str:
    """Those that a service needs to start; no broker answers it."""
    common = (
        f"cluster.id: 4L6g3nShT-eMCtK--X86sw\nkafka.bootstrap.servers: [127.0.0.1:{ports.take()}]\n"
        f"state.dir: {folder}/state\ngrpc.listen: unix:{folder}/g\nhttp.listen: 127.0.0.1:{http}\n"
        f"plugin: local\nrsm.config.root: {folder}/store\n"
    )
    if "reader" in name:
        return common
    return (
        f"{common}node.id: 1\nlog.dirs: {folder}/logs\nproxy.listen: 127.0.0.1:{ports.take()}\n"
        f"broker.tiered.address: 127.0.0.1:{ports.take()}\n"
        f"broker.direct.address: 127.0.0.1:{ports.take()}\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_runs_under_the_limits_of_its_unit(name: str, tmp_path: Path) -> None:
    unit = read_unit(name)
    (tmp_path / "store").mkdir()
    (tmp_path / "logs").mkdir()
    meta = "version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n"
    (tmp_path / "logs/meta.properties").write_text(meta)
    ports = PortReservation()
    port = ports.take()
    config = tmp_path / "settings.yaml"
    config.write_text(settings(name, tmp_path, ports, port))
    ports.lend_all()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            limited(unit, command_of(unit, config)),
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_answered(port, process)
        assert process.poll() is None, log.read_text()
        modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("*")}
        assert modes == {0}, "UMask is that of the unit"
        process.send_signal(signal.SIGTERM)
        assert process.wait(float(unit["TimeoutStopSec"][0])) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        ports.release_all()


@pytest.mark.parametrize("name", NAMES)
def test_both_units_are_of_the_user_that_sysusers_makes(name: str) -> None:
    unit = read_unit(name)
    made = (UNITS / "kafka-rlm.sysusers").read_text(encoding="utf-8")
    assert re.search(rf"^u {unit['User'][0]} ", made, re.MULTILINE)
    assert unit["User"] == unit["Group"]
    assert unit["StateDirectory"] == [name.removesuffix(".service")]


def test_h24_workers_that_hang_and_a_core_that_hangs_end_before_the_unit_is_killed() -> None:
    """One after the other: the workers drain first."""
    (row,) = (one for one in rows_of(ServiceConfig).values() if one.key == "shutdown.timeout.ms")
    each_ms = row.default + STOP_MARGIN_MS + KILLED_MS
    assert float(read_unit("kafka-rlm.service")["TimeoutStopSec"][0]) * 1_000 > 2 * each_ms


def test_the_reader_is_shut_in_as_the_service_is() -> None:
    service, reader = map(read_unit, NAMES)
    differing = {key for key in {*service, *reader} if service.get(key) != reader.get(key)}
    own = {"Description", "ExecStart", "Environment", "StateDirectory", "RuntimeDirectory"}
    assert differing == {*own, "SupplementaryGroups"}


@pytest.mark.parametrize("name", NAMES)
def test_little_is_exposed_to_a_unit(name: str) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    command = [program, "security", "--offline=true", "--no-pager"]
    command += [f"--threshold={MOST_EXPOSED_TENTHS}", str(UNITS / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Unknown" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("there is no systemd-analyze that reads units offline")
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_systemd_knows_every_line(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    text = (UNITS / name).read_text(encoding="utf-8")
    copy = tmp_path / name
    copy.write_text(text.replace(PROGRAM, "/bin/true").replace("Documentation=man:rlm(1)\n", ""))
    done = subprocess.run(
        [program, "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if name in line] == []
