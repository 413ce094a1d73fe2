"""A client of the tests that speaks frames, one request at a time."""

import asyncio

from kafka_protocol.frames import encode_request, parse_response_header
from kafka_protocol.schema import Api, Value, decode
from tests.rlm.proxy.border import settled


class RawClient:
    """Speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = "test-client"
        self._correlation_id = 100

    def encode(self, api: Api, version: int, value: Value) -> bytes:
        self._correlation_id += 1
        return encode_request(api, version, self._correlation_id, self.client_id, value)

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def answer(self, api: Api, version: int) -> Value:
        frame = await self.frame()
        _, position = parse_response_header(frame, api, version)
        value, end = decode(api.response, version, frame, position)
        assert end == len(frame)
        return value

    async def call(self, api: Api, version: int, value: Value) -> Value:
        await settled()
        self.writer.write(self.encode(api, version, value))
        async with asyncio.timeout(120):
            return await self.answer(api, version)
