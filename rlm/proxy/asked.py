"""The answer of the broker that a handler waits for. One connection has one such answer at a time,
because its requests are handled one after the other. This module must not know handlers.
"""

import asyncio

from kafka_protocol.frames import frame_length
from kafka_protocol.primitives import Buffer
from rlm.proxy.begun import Steps
from rlm.proxy.responses import ResponseCutter
from rlm.proxy.session import Expected
from rlm.proxy.sides import BrokerSide


class AskedAnswer:
    """Requests of handlers, between the answers that the client's own requests get."""

    def __init__(self, responses: ResponseCutter, work: Steps) -> None:
        self._responses = responses
        self._work = work
        self._settled: asyncio.Future[None] | None = None

    async def ask(
        self, broker: BrokerSide | None, frame: Buffer, expected: Expected
    ) -> bytearray | None:
        """The answer's frame; None: it was streamed. ConnectionResetError: there is no broker."""
        if broker is None:
            raise ConnectionResetError("the connection to the broker is gone")
        answer: asyncio.Future[bytearray | None] = asyncio.get_running_loop().create_future()
        self._work.awaited = answer
        self._responses.expect(expected)
        broker.writer.write_all([frame_length(len(frame)), frame])
        try:
            return await answer
        finally:
            # An answer may be large, and the next request may come much later.
            del answer
            self._work.awaited = None

    def came(self, frame: bytearray | None) -> None:
        """The answer is there; `go_on` lets the handler have it."""
        answer = self._work.awaited
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def go_on(self) -> None:
        """Let the handler go on whose answer came, if one did."""
        if self._work.awaited is not None and self._work.awaited.done():
            self._work.go_on()

    async def settled(self) -> None:
        """Wait until the client has got all answers of the broker."""
        if not self._responses.is_idle:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled

    def check_settled(self) -> None:
        """To be called where answers may have been the last ones; ends the wait of `settled`."""
        is_waiting = self._settled is not None and not self._settled.done()
        if self._responses.is_idle and is_waiting and self._settled is not None:
            self._settled.set_result(None)
