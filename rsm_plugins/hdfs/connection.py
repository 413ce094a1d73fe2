"""The clients of hdfs-native; every call to them has a deadline of this plugin.

The library's blocking functions are used, in threads of ours; they release Python's lock (the GIL)
while they run. Its asyncio functions cannot be used: they run with the GIL held and take locks of
the library, while a thread of the library that holds such a lock waits for the GIL to resume a
caller. It does so for all calls of a connection that breaks (`call_map` in the library's
connection.rs), and for a write whose pipeline of DataNodes breaks (the packets' channel in
block_writer.rs). Then the whole process hangs: no deadline and no signal handler runs any more.
test_connection.py shows that such a call does not stop the process.

A blocking call cannot be given up: its thread stays until the NameNode answers or its connection
ends (a DataNode's silence is ended by the library after a minute). So after a call without answer
no client is used before one small question to the NameNode was answered through it, and there is
at most one such question at a time for each client. Thus a silent NameNode takes the threads of
the calls that were under way when it fell silent and one for each client, and no more with time.
rsm_plugins/threads.py bounds and counts them in any case (G10).

A client that is destroyed waits for its threads with the GIL held, so no client is ever destroyed.
A store has a few clients: after one timed out or panicked, the next one is used, which asks the
next NameNode first. The library itself would keep asking a NameNode that accepts connections and
never answers.
"""

import asyncio
import ctypes
import enum
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hdfs_native._internal import RawClient

from kip405.errors import Busy, Invalid, RemoteStorageError, Unavailable
from rsm_plugins.event_log import EventLog
from rsm_plugins.hdfs.errors import cause_of, error_of_hdfs, is_foreign, is_panic
from rsm_plugins.hdfs.settings import HdfsSettings
from rsm_plugins.threads import FINISH_MS, Job, Threads

CLIENTS_MAX = 6
"""A multiple of two and three NameNodes; each client has a thread per core and its connections."""
CALLS_AT_ONCE = 64
CALLS_WAITING_MAX = 4096
_AGAIN_SECONDS = 0.2
_GIVE_UP_SECONDS = 1.0
_UNPROVEN = -1
_PASSING_SHARE = 3
_NO_FOLDER = os.devnull
T = TypeVar("T")
Call = Callable[[], T]
Needless = Coroutine[Any, Any, bool]

log = EventLog(__name__)


class Repeat(enum.Enum):
    """Whether a call may be repeated during a fail-over of NameNodes."""

    NEVER = "never"
    IF_NEVER_RAN = "if it surely changed nothing"
    ALWAYS = "whenever the connection broke: asking twice does no harm"


class PooledClient:
    """A client of the library. `proven_at`: the number of replacements when a NameNode last
    answered it, or when it was the first client.
    """

    def __init__(self, blocking: RawClient) -> None:
        self.blocking = blocking
        self.proven_at = 0
        self.question: Job[object] | None = None


class Session:
    """Calls through one client; `client` has the library's blocking functions, for `call`."""

    def __init__(self, connection: "Connection", client: PooledClient) -> None:
        self._connection = connection
        self._client = client
        self.client = client.blocking

    async def call(
        self, operation: str, target: str, make: Call[T], *, repeat: Repeat = Repeat.IF_NEVER_RAN
    ) -> T:
        """What `make` returns in a thread, within the call timeout. Errors are kip405's, except
        FileNotFoundError and FileExistsError, whose meaning depends on the caller.
        """
        return await self._connection.run(self._client, operation, target, make, repeat)

    async def call_unless(
        self, operation: str, target: str, make: Call[object], is_needless: Callable[[], Needless]
    ) -> None:
        """As `call`, but returns too as soon as `is_needless` has returned True: the call then goes
        on without its caller, within the call timeout, whatever becomes of it.
        """
        calling = self._connection.run(self._client, operation, target, make, Repeat.IF_NEVER_RAN)
        await self._connection.unless(calling, is_needless())


class Connection:
    """Owns the clients; its creator calls `close`."""

    def __init__(self, settings: HdfsSettings) -> None:
        self._settings = settings
        self._clients: list[PooledClient] = []
        self._replacements = 0
        self._waiting = 0
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._seconds = settings.call_timeout_ms / 1000
        self._threads = Threads("hdfs", CALLS_AT_ONCE, hang_ms=settings.call_timeout_ms)
        self._left: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def call_seconds(self) -> float:
        """How long a call may take."""
        return self._seconds

    def session(self) -> Session:
        """A session with the current client; Invalid where the settings make none."""
        if self._closed:
            raise Unavailable(f"{self._settings.url}: the store was closed")
        at = self._replacements % CLIENTS_MAX
        if at == len(self._clients):
            made = _kept_until_exit(make_client(self._settings, first=at))
            self._clients.append(PooledClient(made))
        return Session(self, self._clients[at])

    async def run(
        self, client: PooledClient, operation: str, target: str, make: Call[T], repeat: Repeat
    ) -> T:
        """See Session.call."""
        if self._waiting >= CALLS_WAITING_MAX:
            raise Busy(f"{self._waiting} calls wait for HDFS already; come back later")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            raise Busy(f"cannot {operation} {target}: HDFS is busy with others' calls") from error
        finally:
            self._waiting -= 1
        try:
            return await self._in_time(client, operation, target, make, repeat)
        finally:
            self._slots.release()

    async def unless(self, call: Coroutine[Any, Any, object], needless: Needless) -> None:
        """See Session.call_unless."""
        calling, asking = self._begun(call), self._begun(needless)
        try:
            await asyncio.wait((calling, asking), return_when=asyncio.FIRST_COMPLETED)
            if not calling.done() and not asking.result():
                await asyncio.wait((calling,))
        except BaseException:
            calling.cancel()
            await asyncio.wait((calling,))
            raise
        finally:
            asking.cancel()
        if calling.done():
            calling.result()

    def _begun(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is kept until it ends, also where nobody waits for it any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._left.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it

    async def _in_time(
        self, client: PooledClient, operation: str, target: str, make: Call[T], repeat: Repeat
    ) -> T:
        ends_at = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(ends_at):
                await self._proven(client, ends_at)
                return await self._passing_over(client, operation, target, make, repeat, ends_at)
        except TimeoutError as error:
            self._replace(client, f"no answer to {operation}")
            raise Unavailable(
                f"cannot {operation} {target}: HDFS gave no answer within {self._seconds:g} s"
            ) from error

    async def _proven(self, client: PooledClient, ends_at: float) -> None:
        """Wait until a NameNode has answered this client since the last replacement of any: with an
        error or not. Callers that give up leave their question to the next ones.
        """
        while client.proven_at != self._replacements:
            at = self._replacements
            if client.question is None or client.question.future.done():
                client.question = self._begin(lambda: client.blocking.get_file_info("/"), ends_at)
            await asyncio.wait((client.question.future,))
            client.proven_at = at

    def _begin(self, make: Call[T], ends_at: float) -> Job[T]:
        """A call in a thread, which counts as hung after `ends_at`."""
        seconds = ends_at - asyncio.get_running_loop().time()
        return self._threads.begin(make, hang_ms=max(1, int(seconds * 1000)))

    async def _in_thread(self, make: Call[T], ends_at: float) -> T:
        """A caller that is cancelled before its deadline waits a moment for a call that has begun:
        what it cleans up then should not be changed by the call afterwards.
        """
        now = asyncio.get_running_loop().time
        job = self._begin(make, ends_at)
        return await self._threads.result(job, lambda: _GIVE_UP_SECONDS * (now() < ends_at))

    async def _passing_over(
        self,
        client: PooledClient,
        operation: str,
        target: str,
        make: Call[T],
        repeat: Repeat,
        ends_at: float,
    ) -> T:
        """Repeats the call during a fail-over; with a single NameNode the first failure is
        raised.
        """
        loop = asyncio.get_running_loop()
        patience = self._seconds / _PASSING_SHARE if self._settings.namenodes else 0.0
        give_up_at = loop.time() + patience
        while True:
            try:
                return await self._in_thread(make, ends_at)
            except (FileNotFoundError, FileExistsError, TimeoutError, RemoteStorageError):
                raise
            except BaseException as error:
                if not is_foreign(error):
                    raise
                if is_panic(error):
                    self._replace(client, "a panic of the library")
                if not _may_repeat(error, repeat) or loop.time() >= give_up_at:
                    raise error_of_hdfs(error, operation, target) from error
            await pause(_AGAIN_SECONDS)

    def _replace(self, client: PooledClient, why: str) -> None:
        """Go on to the next client, unless this one was replaced already."""
        client.proven_at = _UNPROVEN
        at = self._replacements % CLIENTS_MAX
        if at < len(self._clients) and self._clients[at] is client:
            self._replacements += 1
            log.warning("hdfs_client_replaced", url=self._settings.url, why=why)

    async def close(self) -> None:
        """No call begins any more, and those that have begun are waited for a while; the resources
        of the clients stay as long as the process.
        """
        self._closed = True
        await self._threads.finish(FINISH_MS)
        for task in self._left:
            task.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)


def _kept_until_exit(client: RawClient) -> RawClient:
    """Kept also while the interpreter ends and clears its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    return client


def _may_repeat(error: BaseException, repeat: Repeat) -> bool:
    if repeat is Repeat.ALWAYS and isinstance(error, OSError):
        return True
    return repeat is not Repeat.NEVER and cause_of(error).never_ran


def make_client(settings: HdfsSettings, *, first: int) -> RawClient:
    """A client that has sent no request yet; Invalid if the library refuses the settings."""
    if settings.user is not None:
        _act_as(settings.user)
    try:
        return RawClient(**client_arguments(settings, first=first))
    except BaseException as error:
        if not (is_foreign(error) or isinstance(error, ValueError)):
            raise
        raise Invalid(f"no HDFS client for {settings.url}: {error}") from error


def client_arguments(settings: HdfsSettings, *, first: int = 0) -> dict[str, Any]:
    """The arguments of the library's client. It gets no configuration folder, because settings.py
    has read the files.
    """
    return {
        "url": settings.url,
        "config": settings.client_conf(first),
        "config_dir": _NO_FOLDER,
        "kerberos_principal": settings.principal,
        "kerberos_keytab": settings.keytab,
        "kerberos_cache": settings.credentials,
    }


def _act_as(user: str) -> None:
    """The library takes the user from the environment and nowhere else, at every connection."""
    os.environ["HADOOP_USER_NAME"] = user


async def pause(seconds: float) -> None:
    """Wait in real time before a server is asked again."""
    await asyncio.sleep(seconds)  # noqa: TID251 - the one wait of this package


PIECES_AT_ONCE = 4


async def together(
    work: Sequence[Coroutine[object, object, T]], *, at_once: int = PIECES_AT_ONCE
) -> list[T]:
    """Results in order, a bounded number at a time; the first failure ends the others and is raised
    alone.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(coroutine: Coroutine[object, object, T]) -> T:
        async with slots:
            return await coroutine

    if len(work) == 1:
        return [await work[0]]
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(coroutine)) for coroutine in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    finally:
        for coroutine in work:
            coroutine.close()  # those that never began
    return [task.result() for task in running]
