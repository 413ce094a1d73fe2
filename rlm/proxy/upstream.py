"""What a handler may do with the client's own connection to the broker.

Why: handlers settle one request; they must not know sockets, and tests give them a script.
"""

from typing import Protocol

from kafka_protocol.primitives import Buffer

WHOLE = None
STREAMED = 0


class Upstream(Protocol):
    """The connection to the broker, in the client's name."""

    async def ask(
        self, frame: Buffer, api_version: int, correlation_id: int, stream_above: int | None
    ) -> bytearray | None:
        """Send a request (no length before it) and wait for its answer.

        An answer of more than `stream_above` bytes (None = no limit but max_frame_bytes) goes
        straight to the client: None is answered once it is through. Raises ConnectionError.
        """
        ...

    async def settled(self) -> None:
        """Wait until every earlier request was answered, before an answer of our own is given."""
        ...
