"""Plugins as children: handshake, faults in one line, restarts, stop, death of the parent."""

import asyncio
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from kip405.addresses import Address
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from rsm_plugins.contract.client import GrpcRemoteStorageManager
from rsm_plugins.process.handshake import handshake, parse_handshake
from rsm_plugins.process.spawned import OWN_COMMAND, SpawnedPlugin, SpawnTimes
from tests import waiting
from tests.rsm_plugins.harness import DEADLINES

until = partial(waiting.until, timeout_s=240)

ROOT = Path(__file__).parents[2]
WAYS = ("linux", "other") if platform.system() == "Linux" else ("other",)
QUICK = SpawnTimes(handshake=240, stop=240, back_off_first=0.01, back_off_last=0.04)
SECRET = "swordfish"
HELLO = """
import os, sys, yaml
address = yaml.safe_load(open(sys.argv[-1]))["listen"].removeprefix("unix:")
print(f"1|1|unix|{address}|grpc", flush=True)
"""


def script(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def problem_of(plugin: SpawnedPlugin) -> str:
    return str(plugin.problem)


@asynccontextmanager
async def spawned(
    command: list[str] | tuple[str, ...],
    config: Mapping[str, Any] | None = None,
    **others: Any,
) -> AsyncIterator[SpawnedPlugin]:
    """A plugin kept running while the block runs."""
    with tempfile.TemporaryDirectory(prefix="rlm-") as folder:
        arguments: dict[str, Any] = {
            "sleep": asyncio.sleep,
            "times": QUICK,
            "runtime_dir": Path(folder),
            "on_log": lambda line: None,
            **others,
        }
        plugin = SpawnedPlugin(name="one", config=config or {}, command=command, **arguments)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(plugin.run())
            try:
                yield plugin
            finally:
                running.cancel()
        assert os.listdir(folder) == []


async def until_serves_another(client: GrpcRemoteStorageManager, instance: str) -> None:
    async with asyncio.timeout(240):
        while True:
            try:
                assert (await client.get_info()).instance != instance
                return
            except Unavailable:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", WAYS)
async def test_a_plugin_serves_is_killed_and_serves_again(tmp_path: Path, way: str) -> None:
    lines: list[str] = []
    config = {"plugin": "local", "rsm.config.root": str(tmp_path), "log_level": None}
    async with spawned(OWN_COMMAND, config, on_log=lines.append, way=way) as plugin:
        await plugin.ready()
        assert (plugin.problem, plugin.restarts) == (None, 0)
        client = GrpcRemoteStorageManager.connect(
            plugin.address, principal="t", deadlines=DEADLINES
        )
        instance = (await client.get_info()).instance
        first = plugin.pid
        assert first is not None
        os.killpg(first, signal.SIGKILL)
        await until(lambda: plugin.pid not in (None, first) and plugin.problem is None)
        assert plugin.restarts == 1
        await until_serves_another(client, instance)
        await client.close()
        last = plugin.pid
        assert last is not None
    assert not psutil.pid_exists(last)
    assert "was stopped" in problem_of(plugin)
    assert any("plugin_serving" in line for line in lines)
    assert "plugin_stopping" in lines[-1], "stopped in order, and its last words were heard"


@pytest.mark.parametrize("way", WAYS)
async def test_a_plugin_gets_no_variable_that_is_withheld(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("RLM_KAFKA_SASL_PASSWORD", SECRET)
    monkeypatch.setenv("OF_THE_STORE", "for it")
    lines: list[str] = []
    says = script("import os, sys; print(sorted(os.environ.items()), file=sys.stderr)")
    withheld = {"RLM_KAFKA_SASL_PASSWORD"}
    async with spawned(says, on_log=lines.append, way=way, withheld=withheld):
        await until(lambda: bool(lines))
    assert "('OF_THE_STORE', 'for it')" in lines[0]
    assert SECRET not in lines[0] and "RLM_KAFKA" not in lines[0]


@pytest.mark.parametrize("harm", ["stands still", "its socket is gone"])
async def test_a_plugin_that_runs_and_does_not_answer_is_started_again(
    tmp_path: Path, harm: str
) -> None:
    """A deadlock in a store's library, or a cleaner of temporary files: it would never end."""
    # On a machine that stalls a plugin may not answer in time before it is harmed.
    await waiting.succeeds_once(
        partial(_is_harmed, tmp_path, harm), failures=(AssertionError, OSError)
    )


async def _is_harmed(tmp_path: Path, harm: str) -> None:
    config = {"plugin": "local", "rsm.config.root": str(tmp_path), "log_level": None}
    times = replace(QUICK, stop=0.5, ask=0.05, answer=2.0, silent_most=2)
    problems: list[str] = []

    async def sleep(seconds: float) -> None:
        problems.append(problem_of(plugin))
        await asyncio.sleep(seconds)

    async with spawned(OWN_COMMAND, config, times=times, sleep=sleep) as plugin:
        await plugin.ready()
        first = plugin.pid
        assert first is not None
        if harm == "stands still":
            os.kill(first, signal.SIGSTOP)
        else:
            shutil.rmtree(Path(plugin.address.removeprefix("unix:")).parent)
        await until(lambda: plugin.pid not in (None, first) and plugin.problem is None)
        assert "it runs and does not answer, asked 2 times" in problems[0]
        client = GrpcRemoteStorageManager.connect(
            plugin.address, principal="t", deadlines=DEADLINES
        )
        assert (await client.get_info()).name == "local"
        await client.close()
    assert not psutil.pid_exists(first)


HANGS_ONCE = """
import ctypes, os, sys, threading, time
from rsm_plugins.process.main import main
def hang(flag):
    while not os.path.exists(flag):
        time.sleep(0.01)
    os.remove(flag)
    ctypes.PyDLL(None).sleep(600)  # a PyDLL's function keeps Python's lock
threading.Thread(target=hang, args=(sys.argv.pop(1),), daemon=True).start()
sys.argv.insert(1, "serve")
main()
"""


async def test_a_plugin_whose_loop_stands_still_ends_itself_and_is_started_again(
    tmp_path: Path,
) -> None:
    """With Python's lock held by a library no signal handler runs and no deadline passes."""
    # On a machine that stalls the loop may stand still before it is to.
    await waiting.succeeds_once(
        partial(_stands_still, tmp_path), failures=(AssertionError, Unavailable)
    )


async def _stands_still(tmp_path: Path) -> None:
    flag, lines, problems = tmp_path / "hang", list[str](), list[str]()
    config = {
        "plugin": "local",
        "rsm.config.root": str(tmp_path),
        "log_level": None,
        "loop.hang.ms": 6_000,
    }

    async def sleep(seconds: float) -> None:
        problems.append(problem_of(plugin))
        await asyncio.sleep(seconds)

    command = [*script(HANGS_ONCE), str(flag)]
    never_asked = replace(QUICK, ask=600)
    async with spawned(
        command, config, times=never_asked, sleep=sleep, on_log=lines.append
    ) as plugin:
        await plugin.ready()
        client = GrpcRemoteStorageManager.connect(
            plugin.address, principal="t", deadlines=DEADLINES
        )
        instance, first = (await client.get_info()).instance, plugin.pid
        flag.touch()
        await until(lambda: not flag.exists())
        with pytest.raises(Unavailable):
            await client.get_info()
        await until(lambda: plugin.pid not in (None, first) and plugin.problem is None)
        await until_serves_another(client, instance)
        await client.close()
    assert len(problems) == 1
    assert "it ended with status 1; its last words: " in problems[0]
    assert "Timeout (0:00:06)!" in lines
    assert any("in hang" in line for line in lines), "where the threads were is in the log"


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("raise SystemExit(3)", Unavailable, "it ended with status 3 before its handshake; it sai"),
        ("raise SystemExit(2)", Invalid, "it ended with status 2 before its handshake"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            Unavailable,
            "it was ended by SIGKILL before",
        ),
        (
            "import sys; sys.stderr.write('bad swordfish\\nworse\\n'); sys.exit(1)",
            Unavailable,
            "status 1 before its handshake; its last words: bad *** | worse",
        ),
        ("print('hello'); input()", Invalid, "the first line 'hello' is no handshake (1|1|unix"),
        ("print('x' * 9999, flush=True); input()", Invalid, "is no handshake"),
        ("print('1|2|unix|/a|grpc'); input()", Invalid, "speaks version 1|2 of the handshake, th"),
        ("print('1|1|unix|/a|netrpc'); input()", Invalid, "speaks 'netrpc' over 'unix', not grpc"),
        ("print('1|1|tcp|127.0.0.1:1|grpc'); input()", Invalid, "listens at 127.0.0.1:1, and was"),
        ("import time; time.sleep(600)", Unavailable, "no handshake within 0.5 s; it said nothing"),
        ("import os, time; os.close(1); time.sleep(600)", Unavailable, "no handshake within 0.5"),
    ],
)
async def test_faults_are_reported_in_one_line(
    code: str, kind: type[RemoteStorageError], said: str
) -> None:
    times = SpawnTimes(handshake=0.5 if "within" in said else 240, stop=240, back_off_first=600)
    config = {"rsm.config.own.secret": SECRET}
    flushed = code.replace("input()", "sys.stdout.flush(); input()")
    async with spawned(script(f"import sys\n{flushed}"), config, times=times) as plugin:
        with pytest.raises(kind) as caught:
            await plugin.ready()
        assert str(caught.value).startswith("plugin one: ")
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert SECRET not in str(caught.value)


async def test_a_command_that_is_not_there() -> None:
    for way in WAYS:
        async with spawned(["/no/such/plugin"], way=way) as plugin:
            with pytest.raises(Invalid, match="cannot run /no/such/plugin: No such file"):
                await plugin.ready()


async def test_pauses_grow_and_are_bounded() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 5:
            await asyncio.sleep(600)

    async with spawned(script("raise SystemExit(1)"), sleep=pause) as plugin:
        await until(lambda: len(pauses) >= 5)
        assert pauses == [0.01, 0.02, 0.04, 0.04, 0.04]
        assert "status 1" in str(plugin.problem)


async def test_a_plugin_that_ignores_sigterm_is_killed_with_its_children() -> None:
    code = (
        HELLO
        + """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, file=sys.stderr, flush=True)
time.sleep(600)
"""
    )
    lines: list[str] = []
    times = SpawnTimes(handshake=240, stop=0.2)
    async with spawned(script(code), times=times, on_log=lines.append) as plugin:
        await plugin.ready()
        await until(lambda: bool(lines))
        pids = [plugin.pid, int(lines[0])]
    await until(lambda: not any(map(_runs, pids)))


def _runs(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_logs_are_passed_on_masked_and_in_pieces() -> None:
    code = (
        HELLO
        + """
print("out swordfish", flush=True)
sys.stderr.write("x" * 200_000 + "\\n" + "the end")
sys.stderr.flush()
os.close(2)
input()
"""
    )
    lines: list[str] = []
    config = {"rsm.config.password": SECRET}
    async with spawned(script(code), config, on_log=lines.append) as plugin:
        await plugin.ready()
        await until(lambda: "the end" in lines and "out ***" in lines)
        cut = [line for line in lines if line.startswith("x")]
        assert sum(map(len, cut)) == 200_000
        assert max(map(len, cut)) < 140_000


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("closed file")])
async def test_a_log_that_cannot_be_written_does_not_end_the_plugin(error: Exception) -> None:
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise error

    code = (
        HELLO
        + """
for word in ("one", "two"):
    print(word, flush=True)
input()
"""
    )
    async with spawned(script(code), on_log=fail) as plugin:
        await plugin.ready()
        pid = plugin.pid
        await until(lambda: lines == ["one", "two"])
        assert (plugin.pid, plugin.problem) == (pid, None)


async def test_the_configuration_is_for_this_user_alone() -> None:
    code = HELLO + "print(open(sys.argv[-1]).read().replace('\\n', ' '), file=sys.stderr)\ninput()"
    lines: list[str] = []
    async with spawned(script(code), {"a": 1, "b": None}, on_log=lines.append) as plugin:
        await plugin.ready()
        await until(lambda: bool(lines))
        assert yaml.safe_load(lines[0].replace(" listen", "\nlisten")) == {
            "a": 1,
            "listen": plugin.address,
        }
        folder = Path(plugin.address.removeprefix("unix:")).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "plugin.yaml").stat().st_mode & 0o777 == 0o600


async def test_a_folder_that_was_cleaned_away_is_made_again() -> None:
    async with spawned(script(HELLO + "input()")) as plugin:
        await plugin.ready()
        shutil.rmtree(Path(plugin.address.removeprefix("unix:")).parent)
        first = plugin.pid
        assert first is not None
        os.killpg(first, signal.SIGKILL)
        await until(lambda: plugin.pid not in (None, first) and plugin.problem is None)


async def test_a_long_folder_is_not_used_for_the_socket(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    async with spawned(script(HELLO + "input()"), runtime_dir=long) as plugin:
        await plugin.ready()
        assert len(plugin.address) < 100
        assert os.listdir(long) == []


PARENT = """
import asyncio, sys
from pathlib import Path
from rsm_plugins.process.spawned import SpawnedPlugin
async def main():
    plugin = SpawnedPlugin(name="one", config={"plugin": "local", "rsm.config.root": sys.argv[1]},
        sleep=asyncio.sleep, runtime_dir=Path(sys.argv[2]), way=sys.argv[3])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        await plugin.ready()
        print(plugin.pid, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_plugin_dies_with_a_parent_that_is_killed(tmp_path: Path, way: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="rlm-") as folder,
        subprocess.Popen(
            [sys.executable, "-c", PARENT, str(tmp_path), folder, way],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as parent,
    ):
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        parent.kill()
        parent.wait(240)
        _, alive = psutil.wait_procs(family, timeout=240)
        assert alive == []
        [left] = os.listdir(folder)
        asyncio.run(_makes_a_folder_there(Path(folder)))
        assert left not in os.listdir(folder), "what a killed parent left is swept by the next"


async def _makes_a_folder_there(folder: Path) -> None:
    plugin = SpawnedPlugin(name="two", config={}, sleep=asyncio.sleep, runtime_dir=folder)
    running = asyncio.create_task(plugin.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("text", ["unix:/a/b", "127.0.0.1:7", "[::1]:7"])
def test_a_handshake_is_read_back(text: str) -> None:
    address = Address.parse(text)
    assert parse_handshake(handshake(address)) == address
