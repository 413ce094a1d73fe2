"""Workers and cores of other versions: message sets with more than ours, and a relay that speaks
them.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.messages import NEWEST_PROTOCOL
from rlm.workers.socket_paths import socket_address
from rlm.workers.v1 import core_pb2 as pb
from tests.rlm.workers.core_site import until

_PACKAGE = pb.DESCRIPTOR.package
_FIELD, _KIND = 15_000, 15_001
_FIELD_NAME, _KIND_NAME = "only_later", "later"
_Row = descriptor_pb2.FieldDescriptorProto
Rewrite = Callable[[bytes], bytes]


@cache
def _later_pool() -> descriptor_pool.DescriptorPool:
    """Our messages, each with a field more, and each side with a kind of message more."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        message.field.add(
            name=_FIELD_NAME, number=_FIELD, type=_Row.TYPE_STRING, label=_Row.LABEL_OPTIONAL
        )
        if message.name in ("ToCore", "ToWorker"):
            message.field.add(
                name=_KIND_NAME,
                number=_KIND,
                type=_Row.TYPE_MESSAGE,
                type_name=f".{_PACKAGE}.Cancel",
                label=_Row.LABEL_OPTIONAL,
                oneof_index=0,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _later_class(name: str) -> Any:
    found = _later_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


def as_later(name: str) -> Rewrite:
    """Messages of this type as the next version sends them: a field more in each part, and a newer
    protocol in its greeting.
    """

    def rewrite(data: bytes) -> bytes:
        message = _later_class(name).FromString(data)
        _fill(message)
        if message.HasField("hello"):
            message.hello.newest_protocol = NEWEST_PROTOCOL + 1
        written: bytes = message.SerializeToString()
        return written

    return rewrite


def of_a_later_kind(name: str, call_id: int = 0) -> bytes:
    """A message of this type of which our version does not know what it says."""
    message = _later_class(name)(call_id=call_id)
    getattr(message, _KIND_NAME).cancelled_call_id = 1
    _fill(message)
    written: bytes = message.SerializeToString()
    return written


def _fill(message: Any) -> None:
    for field, value in message.ListFields():
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.type != FieldDescriptor.TYPE_MESSAGE or is_map:
            continue
        for one in value if field.is_repeated else (value,):
            _fill(one)
    setattr(message, _FIELD_NAME, "of the next version")


def unchanged(data: bytes) -> bytes:
    """As our version says it."""
    return data


class Relay:
    """Stands between workers and a core, and changes what either says."""

    def __init__(self, path: Path, core: Path) -> None:
        self._path, self._core = path, core
        self.to_core: Rewrite = unchanged
        self.to_worker: Rewrite = unchanged
        self.pairs: list[_Pair] = []
        self._server: asyncio.Server | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        with socket_address(self._path) as address:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._accepted, address)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for pair in self.pairs:
            pair.close()

    def _accepted(self) -> FrameLink:
        pair = _Pair(self)
        self.pairs.append(pair)
        task = asyncio.ensure_future(pair.connect(self._core))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return pair.worker


class _Pair:
    """A worker's connection, and the one to the core that stands for it."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._is_connected = asyncio.Event()
        self._early: list[tuple[bytes, RawBytes]] = []
        self.worker = FrameLink(self._from_worker, self.close)
        self.core = FrameLink(self._from_core, self.close)

    async def connect(self, path: Path) -> None:
        await until(lambda: self.worker.is_open)
        try:
            with socket_address(path) as address:
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: self.core, address)
        except OSError:
            self.close()
            return
        self._is_connected.set()
        for message, raw in self._early:
            self._from_worker(message, raw)

    def close(self) -> None:
        self.worker.close()
        self.core.close()

    def _from_worker(self, message: bytes, raw: RawBytes) -> None:
        if not self._is_connected.is_set():
            self._early.append((message, raw))
            return
        self.core.send(self._relay.to_core(message), (raw,))

    def _from_core(self, message: bytes, raw: RawBytes) -> None:
        self.worker.send(self._relay.to_worker(message), (raw,))
