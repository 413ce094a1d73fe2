"""What becomes of files whose DataNodes failed while they were written, without any server."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kip405.errors import Corrupt
from rsm_plugins.hdfs.connection import Connection
from rsm_plugins.hdfs.settings import HdfsSettings
from rsm_plugins.hdfs.tree import HdfsTree

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

    async def write(self, data: bytes) -> None:
        if self.taken:
            self.files[self.path] += self.taken.pop()
            raise REFUSED
        self.files[self.path] += data

    async def hsync(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""


@dataclass
class Client:
    """As much of the library's client as a write needs."""

    taken: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    async def create(self, path: str, options: Any) -> Writer:
        self.files[path] = b""
        return Writer(self.files, path, self.taken)

    async def get_file_info(self, path: str) -> Status:
        if path not in self.files:
            raise FileNotFoundError(path)
        return Status(len(self.files[path]))

    async def mkdirs(self, path: str, mode: int, parents: bool) -> None:
        """Folders are there."""

    async def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        self.files[target] = self.files.pop(source)

    async def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None


def tree_of(client: Client) -> HdfsTree:
    settings = HdfsSettings(url="hdfs://ns", root="/", conf=HA, call_timeout_ms=60_000)
    connection = Connection(settings)
    connection._clients.append(client)  # type: ignore[arg-type] # a fake
    return HdfsTree(connection, "hdfs://ns", "/")


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
