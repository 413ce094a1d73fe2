"""Asks the services of all brokers at the same time: one answer each, or the rows of their streams.

A service that does not answer is an error beside the others' answers, never that of the call.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from kip405.errors import RemoteStorageError
from rlm.api.peers import Peer, Peers, Sent, Stubs

T = TypeVar("T")
Method = Callable[[Stubs], Callable[..., Awaitable[T]]]
"""Chooses the method that is called of the stubs of a service."""

_WAITING_MAX = 64


async def ask_others(
    peers: Peers, method: Method[T], request: Message, principal: str
) -> list[tuple[Peer, T | RemoteStorageError]]:
    """The answer of each other service to the request, or why there is none."""

    async def call(stubs: Stubs, sent: Sent, timeout_s: float) -> T:
        return await method(stubs)(request, metadata=sent, timeout=timeout_s)

    async def ask(peer: Peer) -> T | RemoteStorageError:
        try:
            return await peers.ask(peer.grpc_address, call, principal=principal)
        except RemoteStorageError as error:
            return error

    others = peers.others()
    answers = await asyncio.gather(*(ask(peer) for peer in others))
    return list(zip(others, answers, strict=True))


async def answers_of_others(
    peers: Peers, method: Method[T], request: Message, principal: str
) -> tuple[list[T], dict[int, str]]:
    """The answers of the other services, and by node id why a service gave none."""
    answers, problems = list[T](), dict[int, str]()
    for peer, answer in await ask_others(peers, method, request, principal):
        if isinstance(answer, RemoteStorageError):
            problems[peer.node_id] = str(answer)
        else:
            answers.append(answer)
    return answers, problems


async def merged_rows(
    streams: Mapping[int, AsyncIterator[T]], errors: dict[int, str]
) -> AsyncGenerator[T, None]:
    """The rows of the services' streams, by node id, as they come. `errors` gets why one ended
    early. Whoever closes the generator ends all of them.
    """
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue(_WAITING_MAX)

    async def pump(node_id: int, rows: AsyncIterator[T]) -> None:
        try:
            async for row in rows:
                await queue.put((row,))
        except RemoteStorageError as error:
            errors[node_id] = str(error)
        await queue.put(None)

    async with asyncio.TaskGroup() as group:
        pumps = [group.create_task(pump(node_id, rows)) for node_id, rows in streams.items()]
        left = len(streams)
        try:
            while left:
                row = await queue.get()
                if row is None:
                    left -= 1
                else:
                    yield row[0]
        except GeneratorExit:  # which the group would make an error of
            for one in pumps:
                one.cancel()


def why_silent(leader: int, errors: Mapping[int, str]) -> str:
    """Why no service reported a partition with this leader, -1 = none."""
    if leader < 0:
        return "no leader"
    return errors.get(leader, f"the service of broker {leader} has not reported it")
