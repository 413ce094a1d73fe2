"""The clients of hdfs-native; every call to them has a deadline of this plugin.

The asyncio client is used, not the blocking one: an abandoned asyncio call is cancelled and its
connection freed, while a blocked thread stays blocked as long as a paused NameNode is silent. The
library has two traps. It panics where it would wait outside its runtime, which the number of
allowed fail-overs prevents (settings.py). And a client that is destroyed holds the GIL while it
waits for its threads, one of which may wait for the GIL: then the whole process hangs (seen after a
NameNode was killed in mid-read). So no client is ever destroyed. A store has a few clients: after
one timed out or panicked, the next one is used, which asks the next NameNode first. The library
itself would keep asking a NameNode that accepts connections and never answers.
"""

import asyncio
import ctypes
import enum
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from hdfs_native import AsyncClient

from kip405.errors import Busy, Invalid, RemoteStorageError, Unavailable
from rsm_plugins.hdfs.errors import cause_of, error_of_hdfs, is_foreign, is_panic
from rsm_plugins.hdfs.settings import HdfsSettings

CLIENTS_MAX = 6
"""A multiple of two and three NameNodes; each client has a thread per core and its connections."""
CALLS_AT_ONCE = 64
CALLS_WAITING_MAX = 4096
_AGAIN_SECONDS = 0.2
_PASSING_SHARE = 3
_NO_FOLDER = os.devnull
T = TypeVar("T")
Call = Callable[[], Awaitable[T]]

log = structlog.get_logger(__name__)


class Repeat(enum.Enum):
    """Whether a call may be repeated during a fail-over of NameNodes."""

    NEVER = "never"
    IF_NEVER_RAN = "if it surely changed nothing"
    ALWAYS = "whenever the connection broke: asking twice does no harm"


class Session:
    """Calls through one client."""

    def __init__(self, connection: "Connection", client: AsyncClient) -> None:
        self._connection = connection
        self.client = client

    async def call(
        self, operation: str, target: str, make: Call[T], *, repeat: Repeat = Repeat.IF_NEVER_RAN
    ) -> T:
        """The answer within the call timeout. Errors are kip405's, except FileNotFoundError and
        FileExistsError, whose meaning depends on the caller.
        """
        return await self._connection.run(self.client, operation, target, make, repeat)


class Connection:
    """Owns the clients; its creator calls `close`."""

    def __init__(self, settings: HdfsSettings) -> None:
        self._settings = settings
        self._clients: list[AsyncClient] = []
        self._replacements = 0
        self._waiting = 0
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._seconds = settings.call_timeout_ms / 1000
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
            self._clients.append(_kept_until_exit(make_client(self._settings, first=at)))
        return Session(self, self._clients[at])

    async def run(
        self, client: AsyncClient, operation: str, target: str, make: Call[T], repeat: Repeat
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

    async def _in_time(
        self, client: AsyncClient, operation: str, target: str, make: Call[T], repeat: Repeat
    ) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._passing_over(client, operation, target, make, repeat)
        except TimeoutError as error:
            self._replace(client, f"no answer to {operation}")
            raise Unavailable(
                f"cannot {operation} {target}: HDFS gave no answer within {self._seconds:g} s"
            ) from error

    async def _passing_over(
        self, client: AsyncClient, operation: str, target: str, make: Call[T], repeat: Repeat
    ) -> T:
        """Repeats the call during a fail-over; with a single NameNode the first failure is
        raised.
        """
        loop = asyncio.get_running_loop()
        patience = self._seconds / _PASSING_SHARE if self._settings.namenodes else 0.0
        give_up_at = loop.time() + patience
        while True:
            try:
                return await make()
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

    def _replace(self, client: AsyncClient, why: str) -> None:
        """Go on to the next client, unless this one was replaced already."""
        at = self._replacements % CLIENTS_MAX
        if at < len(self._clients) and self._clients[at] is client:
            self._replacements += 1
            log.warning("hdfs_client_replaced", url=self._settings.url, why=why)

    def close(self) -> None:
        """No call begins any more; the resources of the clients stay as long as the process."""
        self._closed = True


def _kept_until_exit(client: AsyncClient) -> AsyncClient:
    """Kept also while the interpreter ends and clears its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    return client


def _may_repeat(error: BaseException, repeat: Repeat) -> bool:
    if repeat is Repeat.ALWAYS and isinstance(error, OSError):
        return True
    return repeat is not Repeat.NEVER and cause_of(error).never_ran


def make_client(settings: HdfsSettings, *, first: int) -> AsyncClient:
    """A client that has sent no request yet; Invalid if the library refuses the settings."""
    if settings.user is not None:
        _act_as(settings.user)
    try:
        return AsyncClient(**client_arguments(settings, first=first))
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
