"""What becomes of files whose DataNodes failed or were late while they were written, without any
server.
"""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Unavailable
from kip405.ids import Uuid
from rsm_plugins.hdfs import connection
from rsm_plugins.hdfs.connection import Connection, PooledClient
from rsm_plugins.hdfs.settings import HdfsSettings
from rsm_plugins.hdfs.tree import HdfsTree
from tests.waiting import succeeds_once

HA = {
    "dfs.ha.namenodes.ns": "a,b",
    "dfs.namenode.rpc-address.ns.a": "127.0.0.1:1",
    "dfs.namenode.rpc-address.ns.b": "127.0.0.1:2",
}
REFUSED = OSError("Connection refused (os error 111)")


@dataclass
class Status:
    """Of a file."""

    length: int


@dataclass
class Writer:
    """Takes bytes; `taken` says what becomes of the first of them before DataNodes fail."""

    files: dict[str, bytes]
    path: str
    taken: list[bytes]
    closing: "Closing"

    def write(self, data: bytes) -> None:
        if self.taken:
            self.files[self.path] += self.taken.pop()
            raise REFUSED
        self.files[self.path] += data

    def hsync(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self.closing.begun.set()
        self.closing.may_end.wait()
        if self.closing.error is not None:
            raise self.closing.error


@dataclass
class Closing:
    """How the library closes files: at once unless `may_end` is cleared."""

    begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.may_end.set()


@dataclass
class Reader:
    """As much of a file as the NameNode gives readers."""

    data: bytes

    def file_length(self) -> int:
        return len(self.data)

    def read_range(self, start: int, size_bytes: int) -> bytes:
        return self.data[start : start + size_bytes]


@dataclass
class Client:
    """As much of the library's client as a write needs."""

    taken: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    short_reads: int = 0
    """So many readers are given no last block: no DataNode has reported it yet."""
    folders_removed: int = 0
    """So many times the folder of the target is not there when a file is renamed."""
    folders_made: list[str] = field(default_factory=list)
    removed_by_others: bool = False
    """Whether a delete has removed the temporary file before it is renamed."""
    closing: Closing = field(default_factory=Closing)
    leases: list[BaseException | bool] = field(default_factory=list)
    """What the NameNode answers to the end of a lease, one after the other."""
    leases_asked: int = 0
    lease_asked: threading.Event = field(default_factory=threading.Event)

    def read(self, path: str) -> "Reader":
        if path not in self.files:
            raise FileNotFoundError(path)
        if self.short_reads:
            self.short_reads -= 1
            return Reader(b"")
        return Reader(self.files[path])

    def create(self, path: str, options: Any) -> Writer:
        self.files[path] = b""
        return Writer(self.files, path, self.taken, self.closing)

    def recover_lease(self, path: str) -> bool:
        assert not self.short_reads, "asked too early, which would begin a recovery of the block"
        self.leases_asked += 1
        self.lease_asked.set()
        answer = self.leases.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def get_file_info(self, path: str) -> Status:
        if path not in self.files:
            raise FileNotFoundError(path)
        return Status(len(self.files[path]))

    def mkdirs(self, path: str, mode: int, parents: bool) -> None:
        self.folders_made.append(path)

    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        assert not self.short_reads, f"{target} is published before it can be read"
        if self.removed_by_others:
            del self.files[source]
            raise FileNotFoundError(source)
        if len(self.folders_made) < self.folders_removed:
            raise FileNotFoundError(target)
        self.files[target] = self.files.pop(source)

    def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None


def tree_of(client: Client, call_timeout_ms: int = 60_000) -> HdfsTree:
    settings = HdfsSettings(url="hdfs://ns", root="/", conf=HA, call_timeout_ms=call_timeout_ms)
    made = Connection(settings)
    made._clients.append(PooledClient(client))  # type: ignore[arg-type] # a fake
    return HdfsTree(made, "hdfs://ns", "/")


@pytest.mark.parametrize("taken", [b"abc", b"ab"], ids=["the whole piece", "part of it"])
async def test_g9_bytes_that_were_written_twice_are_not_published(taken: bytes) -> None:
    """A DataNode refuses after it took bytes, and the write is made again: they are there twice."""
    client = Client(taken=[taken])
    async with tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        with pytest.raises(Corrupt, match=f"the.log came to {3 + len(taken)} bytes instead of 3"):
            await writing.publish(path, "the.log", 3, "copy to")
    assert client.files == {}


async def test_a_write_that_was_refused_before_it_took_anything_is_made_again() -> None:
    client = Client(taken=[b""])
    async with tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        await writing.publish(path, "the.log", 3, "copy to")
    assert client.files == {"/the.log": b"abc"}


async def test_a_file_is_published_once_readers_are_given_all_of_it() -> None:
    """A NameNode that closes a file before its last block is reported gives readers none of it."""
    client = Client(short_reads=3)
    async with tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        await writing.publish(path, "the.log", 3, "copy to")
    assert client.files == {"/the.log": b"abc"}


@pytest.mark.parametrize("removed", [0, 1, 20])
async def test_the_folder_of_a_file_is_made_where_it_is_missing_and_nowhere_else(
    removed: int,
) -> None:
    """Twenty times: an empty folder is removed by each delete of the last segment in it."""
    client = Client(folders_removed=removed)
    async with tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        if removed == 20:
            with pytest.raises(Unavailable, match="/topic is removed again and again"):
                await writing.publish(path, "topic/the.log", 3, "copy to")
        else:
            await writing.publish(path, "topic/the.log", 3, "copy to")
    assert client.folders_made == ["/topic"] * removed
    assert client.files == ({} if removed == 20 else {"/topic/the.log": b"abc"})


async def test_a_file_that_a_delete_removed_before_it_was_published_makes_no_folder() -> None:
    client = Client(removed_by_others=True)
    async with tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        with pytest.raises(Unavailable, match=r"the\.log was deleted while it was being copied"):
            await writing.publish(path, "topic/the.log", 3, "copy to")
    assert client.folders_made == []


async def test_a_file_whose_last_block_nobody_reports_is_not_published() -> None:
    async def attempt() -> None:
        client = Client(short_reads=1_000_000, files={"/the.log": b"old"})
        async with tree_of(client, call_timeout_ms=1_000).writing("one") as writing:
            path = await writing.write(b"abc", "copy to")
            with pytest.raises(
                Unavailable, match=r"no DataNode has reported the last block of the\.log"
            ):
                await writing.publish(path, "the.log", 3, "copy to")
        assert client.files == {"/the.log": b"old"}

    await succeeds_once(attempt, failures=(AssertionError, Unavailable))


@pytest.fixture
def waiting() -> Iterator[Closing]:
    """A library that waits before it asks again whether a file is complete; it ends with the
    test.
    """
    closing = Closing()
    closing.may_end.clear()
    yield closing
    closing.may_end.set()


async def test_a_file_is_closed_as_soon_as_its_last_block_is_complete(waiting: Closing) -> None:
    """The library's own close goes on alone, and what becomes of it does not count."""
    client = Client(short_reads=3, closing=waiting, leases=[True])
    waiting.error = RuntimeError('RPCError("java.io.FileNotFoundException", "x")')
    async with asyncio.timeout(60), tree_of(client).writing("one") as writing:
        path = await writing.write(b"abc", "copy to")
        await writing.publish(path, "the.log", 3, "copy to")
    assert not waiting.may_end.is_set()
    assert (client.files, client.leases_asked) == ({"/the.log": b"abc"}, 1)


@pytest.mark.parametrize(
    "answer",
    [False, REFUSED, FileNotFoundError("x"), RuntimeError('RPCError("java.io.IOException", "x")')],
    ids=["not yet", "a broken connection", "a removed file", "a refusal"],
)
async def test_a_file_whose_lease_does_not_end_is_closed_by_the_library(
    waiting: Closing, answer: BaseException | bool
) -> None:
    client = Client(closing=waiting, leases=[answer] * 1_000)
    async with tree_of(client).writing("one") as writing:
        written = asyncio.ensure_future(writing.write(b"abc", "copy to"))
        await asyncio.to_thread(client.lease_asked.wait)
        await asyncio.sleep(0.05)
        assert not written.done()
        waiting.may_end.set()
        await writing.publish(await written, "the.log", 3, "copy to")
    assert client.files == {"/the.log": b"abc"}


async def test_a_close_that_fails_fails_the_write(waiting: Closing) -> None:
    waiting.error = RuntimeError('RPCError("java.io.IOException", "lost")')
    client = Client(short_reads=1_000_000, closing=waiting)
    async with tree_of(client).writing("one") as writing:
        waiting.may_end.set()
        with pytest.raises(Unavailable, match="lost"):
            await writing.write(b"abc", "copy to")
    assert client.leases_asked == 0


async def test_bytes_that_were_written_twice_end_no_lease(waiting: Closing) -> None:
    """Then the length is not the one that was written, and the library has the last word."""
    client = Client(taken=[b"abc"], closing=waiting, leases=[True])
    async with tree_of(client).writing("one") as writing:
        written = asyncio.ensure_future(writing.write(b"abc", "copy to"))
        await asyncio.to_thread(waiting.begun.wait)
        await asyncio.sleep(0.1)
        waiting.may_end.set()
        with pytest.raises(Corrupt, match="came to 6 bytes instead of 3"):
            await writing.publish(await written, "the.log", 3, "copy to")
    assert client.leases_asked == 0


async def test_a_write_that_is_given_up_waits_for_its_close(
    waiting: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cleaned up then is not changed by the close afterwards."""
    monkeypatch.setattr(connection, "_GIVE_UP_SECONDS", 60.0)
    client = Client(short_reads=1_000_000, closing=waiting)
    tree = tree_of(client)
    async with tree.writing("one") as writing:
        written = asyncio.ensure_future(writing.write(b"abc", "copy to"))
        await asyncio.to_thread(waiting.begun.wait)
        written.cancel()
        await asyncio.sleep(0.05)
        assert not written.done()
        waiting.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await written
    assert client.files == {}


async def test_the_identity_is_created_once_readers_are_given_all_of_it() -> None:
    client = Client(short_reads=2, files={"/": b""})
    identity = StoreIdentity(store_id=Uuid(bytes(range(16))), cluster_id="c", created_ms=1)
    assert await tree_of(client).create_identity(identity) == identity
