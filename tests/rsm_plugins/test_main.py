"""`rsm-plugin` as a process: handshake, signals, killed and restarted, paused, wrong use."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from kip405.contracts import Presence
from kip405.errors import Unavailable
from kip405.segments import ByteRange, FileSlice
from rlm_sandbox.ports import PortReservation
from rsm_plugins.conformance.subject import StoredSegment, Subject, read_answer
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from tests.rsm_plugins.harness import new_uuid
from tests.waiting import until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "rsm_plugins.process.main"]
WHOLE = ByteRange(start=0, end=1 << 30)
DEADLINE_MS = 1_000


@pytest.fixture
def port() -> Iterator[int]:
    """A free one that nobody else takes, also while the plugin is started again."""
    with PortReservation() as ports:
        taken = ports.take()
        ports.lend(taken)
        yield taken


def configure(tmp_path: Path, listen: str, **others: object) -> Path:
    root = tmp_path / "store"
    root.mkdir(exist_ok=True)
    path = tmp_path / "plugin.yaml"
    content = {"listen": listen, "rsm.config.root": str(root), **others}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@contextmanager
def serving(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its handshake line; killed at the end."""
    with subprocess.Popen(
        [*COMMAND, "serve", "--config", str(config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 120)
            yield process, process.stdout.readline().strip() if ready else ""
        finally:
            if process.poll() is None:
                process.kill()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("srve",), "No such command 'srve'. Did you mean 'serve'?"),
        (("serve",), "Missing option '--config'."),
        (
            ("serve", "--config", "absent.yaml"),
            "cannot read absent.yaml: No such file or directory",
        ),
        (("conformance", "--cse", "x"), "No such option '--cse'."),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], why: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"rsm-plugin: {why}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_and_stops_cleanly(tmp_path: Path, number: signal.Signals, port: int) -> None:
    with serving(configure(tmp_path, f"127.0.0.1:{port}")) as (process, line):
        assert line == f"1|1|tcp|127.0.0.1:{port}|grpc"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == ""
    events = [json.loads(text)["event"] for text in err.splitlines()]
    assert events[0] == "plugin_serving"
    assert events[-1] == "plugin_stopping"
    assert os.listdir(tmp_path / "store") == []


def test_a_unix_socket_survives_a_kill() -> None:
    with tempfile.TemporaryDirectory(prefix="rsm-") as folder:
        config = configure(Path(folder), f"unix:{folder}/p.sock")
        with serving(config) as (process, line):
            assert line == f"1|1|unix|{folder}/p.sock|grpc"
            process.kill()
            process.wait(60)
        with serving(config) as (process, line):
            assert line == f"1|1|unix|{folder}/p.sock|grpc"
            second = run("serve", "--config", str(config))
            assert (second.returncode, "another process does" in second.stderr) == (2, True)
            process.terminate()
            process.communicate(timeout=120)
        assert "p.sock" not in os.listdir(folder)


async def test_killed_restarted_and_paused(tmp_path: Path, port: int) -> None:
    """Killed: Unavailable, and usable about a second after the restart. Paused: at the deadline."""
    target = f"127.0.0.1:{port}"
    config = configure(tmp_path, target)
    client = GrpcRemoteStorageManager.connect(
        target, principal="t", deadlines=Deadlines(call_ms=60_000, copy_ms=60_000)
    )
    hasty = GrpcRemoteStorageManager.connect(
        target, principal="t", deadlines=Deadlines(call_ms=DEADLINE_MS), share=False
    )
    subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
    with serving(config) as (process, _):
        identity = await subject.ensure_identity()
        segment = subject.segment()
        await subject.complete(segment)
        assert isinstance(await client.fetch_log_segment(segment.locator, WHOLE), FileSlice)
        process.kill()
        process.wait(60)
        with pytest.raises(Unavailable):
            await client.read_identity()
    with serving(config) as (process, line):
        assert line
        started = time.monotonic()
        while True:
            try:
                assert await client.read_identity() == identity
                break
            except Unavailable:
                assert time.monotonic() - started < 60
        found = await client.fetch_log_segment(segment.locator, WHOLE)
        assert read_answer(found) == segment.log
        found = await client.fetch_log_segment(segment.locator, WHOLE)
        assert isinstance(found, FileSlice), "proven again"
        for _ in range(60):  # its first calls may be late on a busy machine
            with suppress(Unavailable):
                assert await hasty.read_identity() == identity
                break
        process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(Unavailable, match="no answer in time"):
            await hasty.read_manifest(segment.locator)
        assert 0.9 * DEADLINE_MS < 1_000 * (time.monotonic() - started) < 60_000
        process.send_signal(signal.SIGCONT)
        assert await client.read_manifest(segment.locator)
    await hasty.close()
    await client.close()


async def test_killed_in_the_middle_of_a_copy(tmp_path: Path, port: int) -> None:
    """Nothing of a copy is visible after a crash; the sweep of the next start clears up."""
    target = f"127.0.0.1:{port}"
    config = configure(tmp_path, target, **{"sweep.grace.ms": 0})
    client = GrpcRemoteStorageManager.connect(
        target, principal="t", deadlines=Deadlines(), share=False
    )
    subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
    segment = subject.segment(log_size_bytes=64 << 20)
    with serving(config) as (process, _):
        await subject.ensure_identity()
        async with asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(refused_copy(subject, segment))
            await until(lambda: bool(list_temporary(tmp_path / "store")))
            process.kill()
        assert copying.result() == "Unavailable"
    assert list_temporary(tmp_path / "store")
    with serving(config):
        assert (await subject.presence(segment)).presence is Presence.MISSING
        assert await subject.names() == []
        await until(lambda: not list_temporary(tmp_path / "store"))
        await subject.complete(segment)
        assert (await subject.presence(segment)).presence is Presence.COMPLETE
    await client.close()


async def refused_copy(subject: Subject, segment: StoredSegment) -> str:
    try:
        await subject.copy(segment)
    except Unavailable as error:
        return type(error).__name__
    return "copied"


def list_temporary(store: Path) -> list[str]:
    names = (name for _, _, files in os.walk(store) for name in files)
    return [name for name in names if name.endswith(".rlm-tmp") and not name.startswith(".probe")]


def test_wrong_use_gives_one_line_and_a_status(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = {
            "Address already in use": configure(tmp_path, f"127.0.0.1:{port}").read_text(),
            "short/path, got 'x'": "listen: x\nrsm.config.root: /store\n",
            "rsm.config.root: missing": "listen: 127.0.0.1:1\n",
        }
        for why, text in cases.items():
            config = tmp_path / "wrong.yaml"
            config.write_text(text, encoding="utf-8")
            done = run("serve", "--config", str(config))
            assert (done.returncode, done.stdout) == (2, "")
            assert why in done.stderr
            assert done.stderr.count("\n") == 1
    done = run("serve", "--config", str(tmp_path / "absent.yaml"))
    assert (done.returncode, "No such file" in done.stderr) == (2, True)


def test_help_names_the_settings() -> None:
    text = run("serve", "--help").stdout
    assert "rsm.config.root: an absolute path (needed)" in text
    assert "1|1|tcp|HOST:PORT|grpc" in text
    assert "conformance" in run("--help").stdout
