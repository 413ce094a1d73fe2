"""Deadlines, replaced clients and bounds of the calls, without any HDFS."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kip405.errors import Busy, RemoteStorageError, Unavailable
from rsm_plugins.hdfs.connection import CALLS_AT_ONCE, CLIENTS_MAX, Connection, PooledClient, Repeat
from rsm_plugins.hdfs.settings import HdfsSettings
from tests.rsm_plugins.hdfs.stores import replaced_clients
from tests.waiting import succeeds_once

HA = {
    "dfs.ha.namenodes.ns": "a,b",
    "dfs.namenode.rpc-address.ns.a": "127.0.0.1:1",
    "dfs.namenode.rpc-address.ns.b": "127.0.0.1:2",
}
STANDBY = 'RPCError("org.apache.hadoop.ipc.StandbyException", "x")'
DAY_MS = 86_400_000


def connection(call_timeout_ms: int = DAY_MS, *, ha: bool = False) -> Connection:
    url = "hdfs://ns" if ha else "hdfs://127.0.0.1:9"
    conf = HA if ha else {}
    return Connection(HdfsSettings(url=url, root="/", conf=conf, call_timeout_ms=call_timeout_ms))


class Silent:
    """Calls that give no answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.was_begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> None:
        self.begun += 1
        self.was_begun.set()
        self.ended.wait()


@contextmanager
def silent_calls() -> Iterator[Silent]:
    """Calls that end with the block."""
    calls = Silent()
    try:
        yield calls
    finally:
        calls.ended.set()


@pytest.fixture
def silent() -> Iterator[Silent]:
    with silent_calls() as calls:
        yield calls


class Failing:
    """Fails so many times with what the library would raise, then answers."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.left = times
        self.error = error

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


async def test_what_gives_no_answer_is_unavailable_and_costs_one_client(silent: Silent) -> None:
    """Many at once through one client; late ones when the next client was not even made."""
    made = connection(50)
    session = made.session()
    calls = (session.call("wait for", "/x", silent) for _ in range(2 * CALLS_AT_ONCE - 1))
    with capture_logs() as logs:
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in answers} <= {Unavailable, Busy}
    assert "cannot wait for /x: HDFS gave no answer within 0.05 s" in str(answers[0])
    assert replaced_clients(logs) == 1
    assert made.session().client is not session.client


@dataclass
class Asked:
    """A client whose NameNode answers the small question when the test says so."""

    calls: Silent
    questions: list[str] = field(default_factory=list)

    def get_file_info(self, path: str) -> None:
        self.questions.append(path)
        self.calls()
        raise OSError("a standby answers too")


async def test_g10_a_silent_name_node_takes_one_thread_for_each_client() -> None:
    async def attempt() -> None:
        with silent_calls() as silent:
            await _asked_often(silent)

    await succeeds_once(attempt)  # a thread may begin after the deadline of its call


async def _asked_often(silent: Silent) -> None:
    made = connection(200)
    clients = [Asked(silent) for _ in range(CLIENTS_MAX)]
    made._clients.extend(map(PooledClient, clients))  # type: ignore[arg-type] # fakes
    for _ in range(3 * CLIENTS_MAX):
        with pytest.raises(Unavailable, match="no answer within"):
            await made.session().call("wait for", "/x", silent)
    assert silent.begun == 1 + CLIENTS_MAX
    assert [len(one.questions) for one in clients] == [1] * CLIENTS_MAX
    silent.ended.set()
    made._seconds = 60.0
    for _ in range(2):
        assert await made.session().call("ask", "/x", Failing(0, OSError())) == "answer"
    assert sum(len(one.questions) for one in clients) <= 1 + CLIENTS_MAX


async def test_a_full_house_is_busy(silent: Silent) -> None:
    made = connection()
    session = made.session()
    waiting = [asyncio.ensure_future(session.call("wait", "/x", silent)) for _ in range(5000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="calls wait for HDFS already"):
        await session.call("wait", "/x", silent)
    for one in waiting:
        one.cancel()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(one, Busy) for one in ended) == 5000 - CALLS_AT_ONCE - 4096
    silent.ended.set()
    assert await session.call("ask", "/x", Failing(0, OSError())) == "answer"


@pytest.mark.parametrize(
    ("error", "repeat", "is_repeated"),
    [
        (RuntimeError(STANDBY), Repeat.IF_NEVER_RAN, True),
        (RuntimeError(STANDBY), Repeat.NEVER, False),
        (OSError("Connection refused (os error 111)"), Repeat.IF_NEVER_RAN, True),
        (OSError("Connection reset by peer (os error 104)"), Repeat.IF_NEVER_RAN, False),
        (OSError("Connection reset by peer (os error 104)"), Repeat.ALWAYS, True),
        (RuntimeError('RPCError("java.io.IOException", "x")'), Repeat.ALWAYS, False),
    ],
)
async def test_the_moments_of_a_fail_over_are_passed_over(
    error: BaseException, repeat: Repeat, is_repeated: bool
) -> None:
    call = Failing(2, error)
    session = connection(ha=True).session()
    if is_repeated:
        assert await session.call("ask", "/x", call, repeat=repeat) == "answer"
        return
    with pytest.raises(RemoteStorageError):
        await session.call("ask", "/x", call, repeat=repeat)
    assert call.left == 1


async def test_retries_end_with_the_deadline_of_the_call() -> None:
    """The plugin cancels a call at its caller's deadline; the caller's task owns the back-off."""
    call = Failing(1_000_000, OSError("Connection refused (os error 111)"))
    session = connection(ha=True).session()
    while call.left == 1_000_000:  # a busy machine may not get that far in time
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.call("ask", "/x", call, repeat=Repeat.ALWAYS)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left that asks again"


async def test_a_single_name_node_is_not_waited_for() -> None:
    call = Failing(1, OSError("Connection refused (os error 111)"))
    with pytest.raises(Unavailable, match="refused"):
        await connection().session().call("ask", "/x", call)


async def test_a_caller_that_gives_up_waits_for_its_call_before_it_cleans_up(
    silent: Silent,
) -> None:
    session = connection().session()
    caller = asyncio.ensure_future(session.call("create", "/x", silent))
    await asyncio.to_thread(silent.was_begun.wait)
    caller.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not caller.done(), "the file would be made after its removal"
    silent.ended.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_session_of_a_replaced_client_asks_before_it_calls_again() -> None:
    """Also after it answered and fell silent again while another client was the present one."""

    async def attempt() -> None:
        with silent_calls() as silent:
            await _called_again(silent)

    await succeeds_once(attempt)  # a thread may begin after the deadline of its call


async def _called_again(silent: Silent) -> None:
    answering, made = Silent(), connection(500)
    answering.ended.set()
    old, asked = made.session(), Asked(answering)
    made._clients[0].blocking = asked  # type: ignore[assignment] # a fake
    for _ in range(2):
        with pytest.raises(Unavailable, match="no answer within"):
            await old.call("wait for", "/x", silent)
    asked.calls = silent
    with pytest.raises(Unavailable, match="no answer within"):
        await old.call("wait for", "/x", Failing(0, OSError()))
    assert (answering.begun, silent.begun) == (1, 3)


async def test_a_missing_file_is_for_the_caller_to_decide() -> None:
    for error in (FileNotFoundError("x"), FileExistsError("x")):
        with pytest.raises(type(error)):
            await connection(ha=True).session().call("ask", "/x", Failing(1, error))


async def test_no_client_is_ever_let_go() -> None:
    """The end of one waits for its threads with Python's lock held."""
    made = connection()
    client = made.session().client
    await made.close()
    del made
    gc.collect()
    assert sys.getrefcount(client) == 3, "this function's, its argument's, and one for ever"
    assert CLIENTS_MAX % 2 == CLIENTS_MAX % 3 == 0


def test_connections_that_break_under_many_calls_do_not_stop_the_process() -> None:
    """As the library's asyncio functions do within seconds (see connection.py)."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.rsm_plugins.hdfs.breaking_name_node"],
        capture_output=True,
        check=False,
        env=os.environ | {"RUST_LOG": "off"},
        text=True,
        timeout=240,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) > 0, "no connection broke under a call"
