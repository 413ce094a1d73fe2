"""Deadlines, replaced clients and bounds of the calls, without any server."""

import asyncio
import gc
import weakref

import pytest
from structlog.testing import capture_logs

from kip405.errors import Busy, RemoteStorageError, Unavailable
from rsm_plugins.hdfs.connection import CALLS_AT_ONCE, CLIENTS_MAX, Connection, Repeat
from rsm_plugins.hdfs.settings import HdfsSettings
from tests.rsm_plugins.hdfs.stores import replaced_clients

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


async def silent() -> None:
    await asyncio.Event().wait()


class Failing:
    """Fails so many times with what the library would raise, then answers."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.left = times
        self.error = error

    async def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


async def test_what_gives_no_answer_is_unavailable_and_costs_one_client() -> None:
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


async def test_a_full_house_is_busy() -> None:
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


async def test_a_single_name_node_is_not_waited_for() -> None:
    call = Failing(1, OSError("Connection refused (os error 111)"))
    with pytest.raises(Unavailable, match="refused"):
        await connection().session().call("ask", "/x", call)


async def test_a_missing_file_is_for_the_caller_to_decide() -> None:
    for error in (FileNotFoundError("x"), FileExistsError("x")):
        with pytest.raises(type(error)):
            await connection(ha=True).session().call("ask", "/x", Failing(1, error))


def test_no_client_is_ever_let_go() -> None:
    """The end of one can stop the whole process: it waits for its threads with Python's lock held,
    and they may wait for the lock.
    """
    made = connection()
    client = weakref.ref(made.session().client)
    made.close()
    del made
    gc.collect()
    assert client() is not None
    assert CLIENTS_MAX % 2 == CLIENTS_MAX % 3 == 0
