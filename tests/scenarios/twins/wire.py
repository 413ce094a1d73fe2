"""Requests from Kafka's own message JSON, answers by kio: neither shares code with the proxy."""

import asyncio
import contextlib
import dataclasses
import importlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Self

from kio.serial import entity_reader

from tests.kafka_protocol.oracle import Oracle

Json = dict[str, Any]
FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = "Fetch", "ListOffsets", "OffsetForLeaderEpoch"
_MODULES = {
    FETCH: "fetch",
    LIST_OFFSETS: "list_offsets",
    OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    "ApiVersions": "api_versions",
}
_LIMIT_S = 120
_CORRELATION_BYTES = 4


class Wire:
    """One connection that asks one request at a time."""

    def __init__(
        self, oracle: Oracle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._oracle = oracle
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, oracle: Oracle, address: str) -> AsyncIterator[Self]:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(oracle, reader, writer)
        finally:
            writer.close()

    async def ask(self, api: str, version: int, request: Json) -> Json:
        """The answer's fields by kio's names; nested tuples of dicts, plain numbers and bytes."""
        frame = self._oracle.request_frame(api, version, request)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(_LIMIT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            answer = await self._reader.readexactly(size)
        return self._decoded(api, version, answer)

    def _decoded(self, api: str, version: int, frame: bytes) -> Json:
        module = importlib.import_module(f"kio.schema.{_MODULES[api]}.v{version}.response")
        entity = getattr(module, f"{api}Response")
        is_flexible = self._oracle.message(f"{api}Response", version).flexible
        has_tags = is_flexible and api != "ApiVersions"
        start = _CORRELATION_BYTES + (1 if has_tags else 0)
        assert not has_tags or frame[_CORRELATION_BYTES] == 0
        value, size = entity_reader(entity)(frame, start)
        assert start + size == len(frame), "bytes are left behind the answer"
        plain: Json = _plain(value)
        return plain

    async def versions(self, api: str) -> range:
        """What is offered of an API."""
        key = self._oracle.messages[f"{api}Request"]["apiKey"]
        answer = await self.ask("ApiVersions", 0, {})
        [found] = [one for one in answer["api_keys"] if one["api_key"] == key]
        return range(found["min_version"], found["max_version"] + 1)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, timedelta):
        return int(value.total_seconds() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return getattr(value, "bytes", value)  # a UUID
