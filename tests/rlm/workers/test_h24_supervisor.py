"""H24: the supervisor's children are started again, replaced one after another, and never left."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from rlm.clock import SystemClock
from rlm.workers.children import Child, ChildPlan, Refused
from rlm.workers.supervisor import watch_children_without_threads
from tests.waiting import until

NOTE = (
    "import os, signal, sys, time\n"
    "def note(*words):\n"
    "    with open(sys.argv[1], 'a') as log: log.write(' '.join(map(str, words)) + '\\n')\n"
    "pid = os.getpid()\n"
    "note('begun', pid)\n"
)
STAYS = (
    "try: print('ready', flush=True)\n"
    "except OSError: pass\n"  # the supervisor is gone
    "sys.stdin.read()\n"
    "note('input ended', pid)\n"
)
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('deaf', pid)\ntime.sleep(60)\n"
DRAINS = (
    "def drain(*_):\n    note('ending', pid)\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, drain)\n"
    "note('drains', pid)\n"
)


LIMIT_S = 60
"""For processes that a busy machine is slow to start and to end."""


class SteppingClock(SystemClock):
    """A child's life has the length that a test says; waits are noted and not waited."""

    def __init__(self, ran_ms: int) -> None:
        self.ran_ms = ran_ms
        self.slept_ms: list[float] = []
        self._now_ms = 0

    def monotonic_ms(self) -> int:
        self._now_ms += self.ran_ms
        return self._now_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        await asyncio.sleep(0)


def plan(
    log: Path, program: str, python: Path = Path(sys.executable), **changes: object
) -> ChildPlan:
    fields: dict[str, object] = {
        "name": "child",
        "command": (str(python), "-S", "-c", NOTE + program, str(log)),
        "first_line": lambda recent_ends: b"%d\n" % recent_ends,
        "stop_ms": 30_000,
        **changes,
    }
    return ChildPlan(**fields)  # type: ignore[arg-type]


def noted(log: Path, word: str) -> list[int]:
    """The processes that wrote this."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[-1]) for line in lines if line.startswith(word)]


def words(log: Path) -> list[str]:
    """What was written, in order."""
    return [line.split()[0] for line in log.read_text().splitlines()]


def assert_ended(log: Path) -> None:
    for pid in noted(log, "begun"):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(60)


@asynccontextmanager
async def running(child: Child) -> AsyncIterator[asyncio.Future[None]]:
    task = asyncio.ensure_future(child.run())
    try:
        yield task
    finally:
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=LIMIT_S)
        assert done


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def install(python: Path) -> None:
    python.symlink_to(sys.executable)


def uninstall(python: Path) -> None:
    python.unlink()


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that a test can remove."""
    install(link := tmp_path / "python")
    return link


async def test_h24_a_child_that_was_steady_is_started_again_at_once(log: Path) -> None:
    clock = SteppingClock(ran_ms=5_000)
    async with running(Child(plan(log, "sys.exit(1)"), clock)):
        await until(lambda: len(noted(log, "begun")) >= 4)
    assert clock.slept_ms == []
    assert_ended(log)


async def test_h24_a_child_that_refuses_after_a_long_replay_has_back_off(log: Path) -> None:
    """Each start reads the whole ledger, beside the broker."""
    clock = SteppingClock(ran_ms=60_000)
    async with running(Child(plan(log, "sys.exit(2)"), clock)):
        await until(lambda: len(clock.slept_ms) >= 3)
    assert_ended(log)


async def test_h24_a_child_that_ends_early_is_started_again_with_back_off(log: Path) -> None:
    clock = SteppingClock(ran_ms=4_999)
    async with running(Child(plan(log, "sys.exit(1)"), clock)):
        await until(lambda: len(clock.slept_ms) >= 5)
    assert 70 < clock.slept_ms[0] < 130
    assert clock.slept_ms[4] > 1_000
    assert_ended(log)


def said_of(log: Path) -> str:
    return log.read_text()


async def test_a_child_gets_no_variable_that_is_withheld(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLM_KAFKA_SASL_PASSWORD", "hidden")
    monkeypatch.setenv("OF_THE_CHILD", "for-it")
    program = "note('environment', [*os.environ.values()], pid); sys.stdin.read()"
    withheld = {"RLM_KAFKA_SASL_PASSWORD"}
    async with running(Child(plan(log, program, withheld=withheld), SteppingClock(ran_ms=5_000))):
        await until(lambda: bool(noted(log, "environment")))
    assert "for-it" in said_of(log) and "hidden" not in said_of(log)


async def test_h24_a_core_that_refuses_early_ends_the_service(log: Path) -> None:
    child = Child(plan(log, "sys.exit(2)", may_refuse=True), SteppingClock(ran_ms=100))
    with pytest.raises(Refused):
        await asyncio.wait_for(child.run(), LIMIT_S)
    assert len(noted(log, "begun")) == 1


async def test_h23_a_core_that_finds_its_broker_late_may_still_refuse(log: Path) -> None:
    """It waits for the broker as long as it takes, and is not ready before it has seen that."""
    child = Child(plan(log, "sys.exit(2)", may_refuse=True), SteppingClock(ran_ms=60_000))
    with pytest.raises(Refused):
        await asyncio.wait_for(child.run(), LIMIT_S)
    assert len(noted(log, "begun")) == 1


async def test_h24_a_core_that_was_ready_and_refuses_later_is_tried_again(log: Path) -> None:
    once = f"if open({str(log)!r}).read().count('begun') == 1: print('ready', flush=True)\n"
    clock = SteppingClock(ran_ms=100)
    program = once + "time.sleep(0.3)\nsys.exit(2)"
    async with running(Child(plan(log, program, may_refuse=True), clock)) as task:
        await until(lambda: len(clock.slept_ms) >= 3)
        assert not task.done()


async def test_h24_a_crash_is_no_refusal(log: Path) -> None:
    clock = SteppingClock(ran_ms=100)
    async with running(Child(plan(log, "sys.exit(1)", may_refuse=True), clock)):
        await until(lambda: len(noted(log, "begun")) >= 3)


async def test_h24_a_child_that_ignores_sigterm_is_killed(log: Path) -> None:
    async with running(Child(plan(log, IGNORES, stop_ms=200), SystemClock())):
        await until(lambda: len(noted(log, "deaf")) == 1)
    (pid,) = noted(log, "begun")
    assert not psutil.pid_exists(pid)


async def test_h24_a_child_that_hangs_in_its_end_is_killed_and_started_again(log: Path) -> None:
    child = Child(plan(log, IGNORES, stop_ms=200), SystemClock())
    async with running(child):
        await until(lambda: len(noted(log, "deaf")) == 1)
        await asyncio.wait_for(child.restart(), LIMIT_S)
        await until(lambda: len(noted(log, "deaf")) == 2)
    assert_ended(log)


async def test_h24_a_child_that_cannot_be_started_is_tried_again(log: Path, python: Path) -> None:
    clock = SteppingClock(ran_ms=5_000)
    async with running(Child(plan(log, "time.sleep(0.2)", python), clock)) as task:
        await until(lambda: bool(noted(log, "begun")))
        uninstall(python)
        await until(lambda: len(clock.slept_ms) >= 5)
        assert clock.slept_ms[4] > 1_000  # however long the attempt has taken
        assert not task.done()
        begun = len(noted(log, "begun"))
        install(python)
        await until(lambda: len(noted(log, "begun")) > begun)
    assert_ended(log)


async def test_h24_a_successor_that_cannot_be_started_ends_nothing(log: Path, python: Path) -> None:
    child = Child(plan(log, STAYS, python), SystemClock())
    async with running(child):
        await until(lambda: len(noted(log, "begun")) == 1)
        uninstall(python)
        await asyncio.wait_for(child.replace(), LIMIT_S)
        assert [child.pid] == noted(log, "begun")
        install(python)
        await asyncio.wait_for(child.replace(), LIMIT_S)
        await until(lambda: [child.pid] == noted(log, "begun")[1:])
    assert_ended(log)


async def test_h24_one_runs_where_a_process_ends_while_its_successor_is_started(log: Path) -> None:
    def kill_the_one_that_runs(recent_ends: int) -> bytes:
        if child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)
            time.sleep(0.2)  # its end is noticed with the next turn of the loop
        return b""

    child = Child(plan(log, STAYS, first_line=kill_the_one_that_runs), SystemClock())
    async with running(child):
        await until(lambda: len(noted(log, "begun")) == 1)
        await asyncio.wait_for(child.replace(), LIMIT_S)
        await until(lambda: child.pid is not None and child.pid in noted(log, "begun"))
        running_now = [pid for pid in noted(log, "begun") if psutil.pid_exists(pid)]
        assert running_now == [child.pid]
    assert_ended(log)


async def test_a_child_gets_how_often_it_has_ended_by_itself_lately(log: Path) -> None:
    clock = SteppingClock(ran_ms=150_000)
    async with running(Child(plan(log, "note('ends', sys.stdin.readline().strip())"), clock)):
        await until(lambda: len(noted(log, "ends")) >= 6)
    assert noted(log, "ends")[:3] == [0, 1, 2]
    assert set(noted(log, "ends")[3:]) == {2}  # all others are more than ten minutes ago


async def test_what_a_child_writes_does_not_stop_it(log: Path) -> None:
    program = (
        "sys.stdout.write('ready\\n' + 'w' * (1 << 20))\nsys.stdout.flush()\nnote('wrote', pid)\n"
    )
    async with running(Child(plan(log, program + STAYS), SystemClock())):
        await until(lambda: len(noted(log, "wrote")) == 1)
    assert_ended(log)


async def test_h24_a_successor_serves_before_the_end_of_the_one_before(log: Path) -> None:
    child = Child(plan(log, DRAINS + STAYS), SystemClock())
    async with running(child):
        await until(lambda: child.pid is not None and len(noted(log, "begun")) == 1)
        (old,) = noted(log, "begun")
        await until(lambda: noted(log, "drains") == [old])
        await child.replace()
        await until(lambda: child.pid not in (None, old))
        assert words(log) == ["begun", "drains", "begun", "drains", "ending"]
        assert noted(log, "ending") == [old]
    assert_ended(log)


async def test_h24_a_successor_that_does_not_serve_replaces_nobody(log: Path) -> None:
    """As where what is installed now is broken: the worker of before serves on."""
    first = f"if open({str(log)!r}).read().count('begun') > 1: sys.exit(1)\nnote('goes on', pid)\n"
    child = Child(plan(log, first + STAYS), SystemClock())
    async with running(child):
        await until(lambda: len(noted(log, "goes on")) == 1)
        (old,) = noted(log, "begun")
        await asyncio.wait_for(child.replace(), LIMIT_S)
        await asyncio.sleep(0.1)
        assert child.pid == old
        assert psutil.Process(old).status() != psutil.STATUS_ZOMBIE
        await asyncio.wait_for(child.replace(), LIMIT_S)  # and it can be tried again
        assert len(noted(log, "begun")) == 3
    assert_ended(log)


async def test_h24_a_successor_outlives_one_that_dies_meanwhile(log: Path) -> None:
    wait = (
        f"while open({str(log)!r}).read().count('begun') > 1:\n"
        "    if os.path.exists(sys.argv[1] + '.go'): break\n"
        "    time.sleep(0.01)\n"
        "note('goes on', pid)\n"
    )
    child = Child(plan(log, wait + STAYS), SystemClock())
    async with running(child):
        await until(lambda: child.pid is not None and len(noted(log, "goes on")) == 1)
        (old,) = noted(log, "begun")
        replacing = asyncio.ensure_future(child.replace())
        await until(lambda: len(noted(log, "begun")) == 2)
        os.kill(old, signal.SIGKILL)
        await until(lambda: child.pid != old)
        os.close(os.open(f"{log}.go", os.O_CREAT))
        await asyncio.wait_for(replacing, LIMIT_S)
        await asyncio.sleep(0.2)
        assert child.pid == noted(log, "begun")[1]
        assert len(noted(log, "begun")) == 2
    assert_ended(log)


SUPERVISES = """
import sys
from rlm.clock import SystemClock
from rlm.workers.children import ChildPlan
from rlm.workers.supervisor import Supervisor, run_supervised
def child(name, program, **more):
    return ChildPlan(name=name, command=(sys.executable, "-S", "-c", program, sys.argv[1]),
                     first_line=lambda recent_ends: b"", stop_ms=30000, **more)
core, worker = sys.argv[2:]
plans = [child("worker", worker) for _ in range(2)]
make = lambda: Supervisor(core=child("core", core, may_refuse=True), workers=plans,
                          clock=SystemClock())
sys.exit(0 if run_supervised(make) else 2)
"""


async def supervise(
    log: Path, core: str = STAYS, worker: str = STAYS
) -> asyncio.subprocess.Process:
    programs = (NOTE + core, NOTE + worker)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SUPERVISES, str(log), *programs),
        env={**os.environ, "PYTHONPATH": "."},
        start_new_session=True,
    )


async def test_h24_children_end_when_the_supervisor_is_killed(log: Path) -> None:
    process = await supervise(log)
    await until(lambda: len(noted(log, "begun")) == 3)
    process.kill()
    await process.wait()
    await until(lambda: len(noted(log, "input ended")) == 3)
    assert_ended(log)


async def test_h24_sigterm_ends_the_supervisor_and_all_children(log: Path) -> None:
    process = await supervise(log)
    await until(lambda: len(noted(log, "begun")) == 3)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == 0
    assert not any(psutil.pid_exists(pid) for pid in noted(log, "begun"))


@pytest.mark.parametrize("takes_time", ["core", "worker"])
async def test_h24_nothing_is_started_again_while_the_others_take_their_time_to_end(
    log: Path, takes_time: str
) -> None:
    """A signal to the whole group, as of a terminal, ends each at once."""
    slow = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), os._exit(0)))\n"
    process = await supervise(log, **{takes_time: slow + "note('slow', pid)\n" + STAYS})
    most = 1 if takes_time == "core" else 2
    await until(lambda: len(noted(log, "begun")) == 3 and len(noted(log, "slow")) == most)
    await asyncio.sleep(0.5)
    os.killpg(process.pid, signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == 0
    assert len(noted(log, "begun")) == 3
    assert_ended(log)


async def test_h24_the_core_works_until_the_workers_have_drained(log: Path) -> None:
    """What a worker's client waits for comes from the core."""
    drains = (
        "def drain(*_):\n"
        "    time.sleep(0.5)\n"
        "    note('worker ended', pid)\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, drain)\n"
        "note('drains', pid)\n"
    )
    process = await supervise(log, DRAINS + STAYS, drains + STAYS)
    await until(lambda: len(noted(log, "drains")) == 3)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == 0
    assert words(log)[-3:] == ["worker", "worker", "ending"]


async def test_h24_a_refused_configuration_ends_the_supervisor_and_the_workers(log: Path) -> None:
    process = await supervise(log, "sys.exit(2)")
    assert await asyncio.wait_for(process.wait(), LIMIT_S) == 2
    assert not any(psutil.pid_exists(pid) for pid in noted(log, "begun"))


async def test_sighup_reaches_the_core_alone_and_not_before_it_serves(log: Path) -> None:
    """A core that starts has no handler yet, and would end."""
    core = (
        "import os\n"
        "while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)\n"
        "signal.signal(signal.SIGHUP, lambda *_: note('reloads', pid))\n"
        "print('ready', flush=True)\n"
    )
    process = await supervise(log, core + STAYS)
    try:
        await until(lambda: len(noted(log, "begun")) == 3)
        process.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.3)
        os.close(os.open(f"{log}.go", os.O_CREAT))
        await until(lambda: len(noted(log, "reloads")) == 1)
        process.send_signal(signal.SIGHUP)
        await until(lambda: len(noted(log, "reloads")) == 2)
        assert len(set(noted(log, "reloads"))) == 1
        assert len(noted(log, "begun")) == 3, "nobody was started again"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), LIMIT_S)


async def test_h24_sigusr2_replaces_every_child(log: Path) -> None:
    process = await supervise(log)
    try:
        await until(lambda: len(noted(log, "begun")) == 3)
        first = noted(log, "begun")
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGUSR2)
        await until(lambda: not any(psutil.pid_exists(pid) for pid in first))
        await until(lambda: len(noted(log, "begun")) >= 6)  # the last one begins after its ancestor
        assert len(noted(log, "begun")) == 6
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), LIMIT_S)
    assert_ended(log)


@pytest.fixture
def _no_threads_for_children(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As at a limit of processes: no thread can be started to wait for a child."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("asyncio-waitpid"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    watch_children_without_threads()
    yield
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_no_threads_for_children")
async def test_a_child_needs_no_thread_of_its_parent(log: Path) -> None:
    async with running(Child(plan(log, STAYS), SystemClock())) as task:
        await until(lambda: bool(noted(log, "begun")))
        assert not task.done()
    assert_ended(log)
