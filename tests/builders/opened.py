"""Clients of aiokafka that a test uses as they are, except that no connection outlives them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kafka_clients.closing_client import ClosingClient, make_closing, stop_consumer

C = TypeVar("C")


@asynccontextmanager
async def opened(made: C) -> AsyncIterator[C]:
    """A consumer, producer or admin client: started, and closed with all of its connections,
    whatever fails or is cancelled meanwhile. aiokafka leaves some open: a collection of garbage
    would find them in the midst of another test, which would fail.
    """
    anything: Any = made
    client = anything.client if isinstance(made, AIOKafkaProducer) else anything._client
    if not isinstance(client, ClosingClient):
        make_closing(client)
    async with AsyncExitStack() as parts:
        parts.push_async_callback(client.close)
        if isinstance(made, AIOKafkaConsumer):
            parts.push_async_callback(stop_consumer, made)
        else:
            end = anything.stop if isinstance(made, AIOKafkaProducer) else anything.close
            parts.push_async_callback(end)
        await anything.start()
        yield made
